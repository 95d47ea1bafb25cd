package attention

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// absorbed is expanded without keys and values. With wkv_b = [W_UK; W_UV] for each head,
// the score of a query q against the key W_UK·c of a latent vector c is
//
//	qᵀ·(W_UK·c) = (W_UKᵀ·q)ᵀ·c
//
// and the weighted sum of the values W_UV·c is W_UV times that of the latent vectors. So
// queries are brought to the latent space, all heads attend to one shared key [c; pe]
// whose first KVLoRA elements are also the value, and the result is brought back. The
// cache has KVLoRA+RoPEDims elements a token, for all heads together, and a token to
// decode costs no expansion of those before it. (DeepSeek-V2, arXiv 2405.04434, §2.1.2
// and appendix C.)
//
// The products associate differently, so that results differ from those of expanded in
// the last bits.
func (c *MLA) absorbed(b *graph.Builder, q, latent, pe graph.Value) graph.Value {
	batch, tokens := latent.Dim(0), latent.Dim(1)
	w := b.Scope("wkv_b").Parameter("weight", latent.Spec().DType, nn.LinearInit(c.Init), c.Heads*(c.NoPEDims+c.ValueDim), c.KVLoRA)
	row := b.Apply(concatLast{}, latent, graph.Reshape(pe, batch, tokens, c.RoPEDims))
	cache := c.Cache.append(b, "latent", graph.Reshape(row, batch, tokens, 1, c.KVLoRA+c.RoPEDims))
	q = b.Apply(absorbKeys{nope: c.NoPEDims}, q, w)
	sum := c.Cache.attend(b, q, cache, cache, c.KVLoRA, c.Mask, c.scale())
	return b.Apply(absorbValues{nope: c.NoPEDims}, sum, w)
}

// absorbKeys brings q [B, T, H, nope+rope] to the latent space by w [H·(nope+v), L]:
// [B, T, H, L+rope].
type absorbKeys struct {
	graph.Pure
	nope int
}

func (absorbKeys) Kind() string { return "matmul" }

func (o absorbKeys) Outputs(in []device.Spec) ([]device.Spec, error) {
	q, w := in[0], in[1]
	if len(q.Shape) != 4 || len(w.Shape) != 2 || q.Last() <= o.nope || w.Shape[0]%q.Shape[2] != 0 || q.DType != w.DType {
		return nil, fmt.Errorf("want q [B, T, H, %d+rope] and weight [H·(%d+v), L], have %v × %v", o.nope, o.nope, q, w)
	}
	return []device.Spec{q.WithShape(q.Shape[0], q.Shape[1], q.Shape[2], w.Shape[1]+q.Last()-o.nope)}, nil
}

func (o absorbKeys) Cost(in []device.Spec) graph.Cost {
	out, _ := o.Outputs(in)
	q, w := in[0], in[1]
	return productCost(in, out, q.Len()/q.Last(), o.nope, w.Shape[1])
}

// productCost is that of rows times matrices of in×out.
func productCost(in, out []device.Spec, rows, width, wide int) graph.Cost {
	c := graph.Traffic(2*float64(rows)*float64(width)*float64(wide), in, out)
	c.ModelFLOPs = c.ExecutedFLOPs
	return c
}

func (o absorbKeys) Run(x *graph.Exec, out, in []device.Tensor) error {
	q, w, y := byHead(in[0]), in[1], byHead(out[0])
	latent := w.Dim(1)
	x.MatMul(y.Slice(2, 0, latent), q.Slice(2, 0, o.nope), headWeights(w, q.Dim(0)).Slice(1, 0, o.nope), false)
	x.Copy(y.Slice(2, latent, y.Dim(2)), q.Slice(2, o.nope, q.Dim(2)))
	return nil
}

// byHead views a contiguous [B, T, H, W] as [H, B·T, W].
func byHead(t device.Tensor) device.Tensor {
	return t.Reshape(t.Dim(0)*t.Dim(1), t.Dim(2), t.Dim(3)).Transpose(0, 1)
}

// headWeights views wkv_b's weight as [H, nope+v, L].
func headWeights(w device.Tensor, heads int) device.Tensor {
	return w.Reshape(heads, w.Dim(0)/heads, w.Dim(1))
}

// absorbValues brings weighted sums of latent vectors, x [B, T, H, L], to values by w
// [H·(nope+v), L]: [B, T, H, v].
type absorbValues struct {
	graph.Pure
	nope int
}

func (absorbValues) Kind() string { return "matmul" }

func (o absorbValues) Outputs(in []device.Spec) ([]device.Spec, error) {
	x, w := in[0], in[1]
	if len(x.Shape) != 4 || len(w.Shape) != 2 || x.Last() != w.Shape[1] || w.Shape[0]%x.Shape[2] != 0 || w.Shape[0]/x.Shape[2] <= o.nope || x.DType != w.DType {
		return nil, fmt.Errorf("want x [B, T, H, L] and weight [H·(%d+v), L], have %v × %v", o.nope, x, w)
	}
	return []device.Spec{x.WithShape(x.Shape[0], x.Shape[1], x.Shape[2], w.Shape[0]/x.Shape[2]-o.nope)}, nil
}

func (o absorbValues) Cost(in []device.Spec) graph.Cost {
	out, _ := o.Outputs(in)
	return productCost(in, out, in[0].Len()/in[0].Last(), in[0].Last(), out[0].Last())
}

func (o absorbValues) Run(x *graph.Exec, out, in []device.Tensor) error {
	sum, y := byHead(in[0]), byHead(out[0])
	w := headWeights(in[1], sum.Dim(0))
	x.MatMul(y, sum, w.Slice(1, o.nope, w.Dim(1)).Transpose(1, 2), false)
	return nil
}
