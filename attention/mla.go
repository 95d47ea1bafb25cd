package attention

import (
	"fmt"
	"math"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// MLA is multi-head latent attention: keys and values of all heads are expanded from
// one latent vector of KVLoRA elements a token; position goes into RoPEDims further
// elements of queries and keys, those of the keys shared by all heads. (DeepSeek-V2,
// arXiv 2405.04434, eq. 9–19.)
//
// Parameters have torchtitan's names: wq.weight [Heads·(NoPEDims+RoPEDims), D], or with
// QLoRA wq_a.weight [QLoRA, D], q_norm.weight and wq_b.weight; wkv_a.weight
// [KVLoRA+RoPEDims, D], kv_norm.weight [KVLoRA], wkv_b.weight
// [Heads·(NoPEDims+ValueDim), KVLoRA] and wo.weight [D, Heads·ValueDim]. Ranks may share the
// heads: a Store's Layout gives each rank some rows of wq or wq_b and of wkv_b, and the same
// columns of wo, while latent vectors are whole on every rank.
type MLA struct {
	Heads int
	// QLoRA is the width of the queries' latent vector; 0 projects directly.
	QLoRA int
	// KVLoRA is the width of the latent vector of keys and values.
	KVLoRA int
	// NoPEDims and RoPEDims are the parts of a query or key without and with position;
	// ValueDim is the width of a value.
	NoPEDims, RoPEDims, ValueDim int
	NormEpsilon                  float64 // 0 means nn.DefaultEpsilon

	RoPE RoPE
	// MScale sharpens attention in a context stretched by YaRN: the scale of scores is
	// multiplied by (0.1·MScale·ln(factor) + 1)². 0 leaves it.
	MScale float64
	// Positions of tokens, int32 [B, T]; graph.None means 0 to T−1 in every sequence.
	Positions graph.Value
	Mask      Mask
	// Cache, if not nil, holds the normalized latent vector and the rotated key of
	// earlier tokens, KVLoRA+RoPEDims elements for each. Keys and values are then never
	// expanded: see absorbed.go.
	Cache *Cache

	// Init of all projections but wo, and OutputInit of wo; nil is that of nn.Linear.
	Init, OutputInit graph.Initializer
}

// Build returns the attention of x [B, T, D] to itself: [B, T, D].
func (c MLA) Build(b *graph.Builder, x graph.Value) graph.Value {
	if b.Err() != nil || x.Node() == nil {
		return b.Fail("mla: the input is absent (graph.None) or of a graph that failed")
	}
	x = b.Enter(x)
	if err := c.check(x); err != nil {
		return b.Fail("mla: %v", err)
	}
	batch, tokens := x.Dim(0), x.Dim(1)
	c.RoPE = c.Cache.rope(c.RoPE)
	q := splitHeads(c.queries(b, x), c.NoPEDims+c.RoPEDims)
	q = c.RoPE.rotateBehind(b, q, c.Positions, c.NoPEDims)

	latent, pe := split(b, nn.Linear(b.Scope("wkv_a"), x, c.KVLoRA+c.RoPEDims, c.Init), c.KVLoRA)
	pe = c.RoPE.Rotate(b, graph.Reshape(pe, batch, tokens, 1, c.RoPEDims), c.Positions)
	latent = nn.RMSNorm(b.Scope("kv_norm"), latent, c.NormEpsilon)
	attend := c.expanded
	if c.Cache != nil {
		attend = c.absorbed
	}
	y := attend(b, q, latent, pe)
	y = graph.Reshape(y, batch, tokens, y.Dim(2)*c.ValueDim)
	return b.Leave(nn.LinearFrom(b.Scope("wo"), y, c.Heads*c.ValueDim, x.Dim(2), c.OutputInit))
}

// splitHeads divides x [B, T, heads·width] into the heads, of which this rank may have a part.
func splitHeads(x graph.Value, width int) graph.Value {
	return graph.Reshape(x, x.Dim(0), x.Dim(1), x.Dim(2)/width, width)
}

// expanded makes keys and values of every head from the latent [B, T, KVLoRA] and pe
// [B, T, 1, RoPEDims], and returns the attention of q to them: [B, T, H, ValueDim].
func (c *MLA) expanded(b *graph.Builder, q, latent, pe graph.Value) graph.Value {
	width := c.NoPEDims + c.ValueDim
	kv := splitHeads(nn.Linear(b.Scope("wkv_b"), latent, c.Heads*width, c.Init), width)
	out := b.ApplyAll(keyValue{nope: c.NoPEDims}, kv, pe)
	return Fused(b, q, out[0], out[1], c.Mask, c.scale())
}

func (c *MLA) queries(b *graph.Builder, x graph.Value) graph.Value {
	width := c.Heads * (c.NoPEDims + c.RoPEDims)
	if c.QLoRA == 0 {
		return nn.Linear(b.Scope("wq"), x, width, c.Init)
	}
	latent := nn.RMSNorm(b.Scope("q_norm"), nn.Linear(b.Scope("wq_a"), x, c.QLoRA, c.Init), c.NormEpsilon)
	return nn.Linear(b.Scope("wq_b"), latent, width, c.Init)
}

// scale of the scores.
func (c *MLA) scale() float64 {
	s := 1 / math.Sqrt(float64(c.NoPEDims+c.RoPEDims))
	if factor := c.RoPE.YaRN.Factor; c.MScale != 0 && factor > 1 {
		m := 0.1*c.MScale*math.Log(factor) + 1
		s *= m * m
	}
	return s
}

func (c *MLA) check(x graph.Value) error {
	if len(x.Shape()) != 3 {
		return fmt.Errorf("want x [batch, tokens, width], have %v", x.Spec())
	}
	switch {
	case c.Heads <= 0 || c.KVLoRA <= 0 || c.QLoRA < 0:
		return fmt.Errorf("%d heads, latent widths %d (queries) and %d (keys and values): set Heads and KVLoRA to 1 or more", c.Heads, c.QLoRA, c.KVLoRA)
	case c.NoPEDims <= 0 || c.RoPEDims <= 0 || c.ValueDim <= 0 || c.RoPEDims%2 != 0:
		return fmt.Errorf("widths %d without and %d with position, %d of values: want 1 or more, and an even RoPEDims", c.NoPEDims, c.RoPEDims, c.ValueDim)
	case c.RoPE.Dims != 0 && c.RoPE.Dims != c.RoPEDims:
		return fmt.Errorf("RoPE.Dims %d differs from RoPEDims %d: leave it at 0", c.RoPE.Dims, c.RoPEDims)
	}
	if err := c.Cache.check(x.Dim(1), c.Positions, c.Mask); err != nil {
		return err
	}
	return c.Mask.check(x.Dim(0), x.Dim(1))
}

// keyValue makes keys and values out of kv [B, T, H, nope+v] and the shared, rotated pe
// [B, T, 1, rope]: k [B, T, H, nope+rope] and v [B, T, H, v].
type keyValue struct {
	graph.Pure
	nope int
}

func (keyValue) Kind() string { return "mla_key_value" }

func (o keyValue) Outputs(in []device.Spec) ([]device.Spec, error) {
	kv, pe := in[0], in[1]
	if len(kv.Shape) != 4 || len(pe.Shape) != 4 || pe.Shape[2] != 1 || kv.Last() <= o.nope || kv.DType != pe.DType ||
		kv.Shape[0] != pe.Shape[0] || kv.Shape[1] != pe.Shape[1] {
		return nil, fmt.Errorf("want kv [B, T, H, %d+v] and pe [B, T, 1, rope], have %v × %v", o.nope, kv, pe)
	}
	b, t, h := kv.Shape[0], kv.Shape[1], kv.Shape[2]
	return []device.Spec{kv.WithShape(b, t, h, o.nope+pe.Last()), kv.WithShape(b, t, h, kv.Last()-o.nope)}, nil
}

func (o keyValue) Cost(in []device.Spec) graph.Cost {
	out, _ := o.Outputs(in)
	return graph.Traffic(0, in, out)
}

func (o keyValue) Run(x *graph.Exec, out, in []device.Tensor) error {
	k, v, kv, pe := out[0], out[1], in[0], in[1]
	x.Copy(k.Slice(3, 0, o.nope), kv.Slice(3, 0, o.nope))
	shared := k.Slice(3, o.nope, k.Dim(3))
	x.Copy(shared, pe.BroadcastTo(shared))
	x.Copy(v, kv.Slice(3, o.nope, kv.Dim(3)))
	return nil
}

func (o keyValue) Gradient(b *graph.Builder, in, out, grad []graph.Value) []graph.Value {
	for i, g := range grad {
		if g.IsNone() {
			s := out[i].Spec()
			grad[i] = b.Full(0, s.DType, s.Shape...)
		}
	}
	return b.ApplyAll(keyValueBackward{nope: o.nope}, grad[0], grad[1])
}

// keyValueBackward computes dkv and dpe, the sum over heads, from dk and dv.
type keyValueBackward struct {
	graph.Pure
	nope int
}

func (keyValueBackward) Kind() string { return "mla_key_value_backward" }

func (o keyValueBackward) Outputs(in []device.Spec) ([]device.Spec, error) {
	b, t, h := in[0].Shape[0], in[0].Shape[1], in[0].Shape[2]
	return []device.Spec{in[0].WithShape(b, t, h, o.nope+in[1].Last()), in[0].WithShape(b, t, 1, in[0].Last()-o.nope)}, nil
}

func (o keyValueBackward) Cost(in []device.Spec) graph.Cost {
	out, _ := o.Outputs(in)
	return graph.Traffic(float64(in[0].Len()), in, out)
}

func (o keyValueBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	dkv, dpe, dk, dv := out[0], out[1], in[0], in[1]
	x.Copy(dkv.Slice(3, 0, o.nope), dk.Slice(3, 0, o.nope))
	x.Copy(dkv.Slice(3, o.nope, dkv.Dim(3)), dv)
	x.Sum(dpe, dk.Slice(3, o.nope, dk.Dim(3)))
	return nil
}

// split copies the first n elements of the last dimension of x [B, T, W] and the rest.
func split(b *graph.Builder, x graph.Value, n int) (head, tail graph.Value) {
	out := b.ApplyAll(splitLast{n: n}, x)
	return out[0], out[1]
}

type splitLast struct {
	graph.Pure
	n int
}

func (splitLast) Kind() string                     { return "split" }
func (splitLast) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in, in) }

func (o splitLast) Outputs(in []device.Spec) ([]device.Spec, error) {
	x := in[0]
	if len(x.Shape) != 3 || x.Shape[2] <= o.n {
		return nil, fmt.Errorf("want [B, T, more than %d], have %v", o.n, x)
	}
	return []device.Spec{x.WithShape(x.Shape[0], x.Shape[1], o.n), x.WithShape(x.Shape[0], x.Shape[1], x.Shape[2]-o.n)}, nil
}

func (o splitLast) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0].Slice(2, 0, o.n))
	x.Copy(out[1], in[0].Slice(2, o.n, in[0].Dim(2)))
	return nil
}

func (splitLast) Gradient(b *graph.Builder, _, out, grad []graph.Value) []graph.Value {
	for i, g := range grad {
		if g.IsNone() {
			s := out[i].Spec()
			grad[i] = b.Full(0, s.DType, s.Shape...)
		}
	}
	return []graph.Value{b.Apply(concatLast{}, grad[0], grad[1])}
}

// concatLast is the gradient of splitLast.
type concatLast struct{ graph.Pure }

func (concatLast) Kind() string                     { return "concat" }
func (concatLast) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in, in) }

func (concatLast) Outputs(in []device.Spec) ([]device.Spec, error) {
	a := in[0]
	return []device.Spec{a.WithShape(a.Shape[0], a.Shape[1], a.Shape[2]+in[1].Shape[2])}, nil
}

func (concatLast) Run(x *graph.Exec, out, in []device.Tensor) error {
	n := in[0].Dim(2)
	x.Copy(out[0].Slice(2, 0, n), in[0])
	x.Copy(out[0].Slice(2, n, out[0].Dim(2)), in[1])
	return nil
}
