package attention

import (
	"fmt"
	"math"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Fused returns softmax(scale · q·kᵀ + mask) · v as one op of the kind attention:
// q [B, T, H, Dqk], k [B, S, Hkv, Dqk] and v [B, S, Hkv, Dv] give [B, T, H, Dv]. H is a
// multiple of Hkv, and query head h reads key head h / (H / Hkv). A scale of 0 is
// Dqk^−½.
//
// Backward keeps q, k, v, the output and, for each query, the log of the softmax's
// denominator. (Dao 2023, FlashAttention-2.)
func Fused(b *graph.Builder, q, k, v graph.Value, m Mask, scale float64) graph.Value {
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(max(1, q.Dim(3))))
	}
	if err := m.check(q.Dim(0), q.Dim(1)); err != nil && b.Err() == nil {
		return b.Fail("attention: %v", err)
	}
	return b.ApplyAll(fused{m.static(), scale}, m.with(q, k, v)...)[0]
}

// fused has the inputs q, k, v and perhaps the borders of documents, and the
// outputs out and lse [B, H, T].
type fused struct {
	mask  staticMask
	scale float64
}

func (fused) Kind() string                       { return "attention" }
func (fused) Workspace([]device.Spec, int) int64 { return 0 }
func (fused) Effects() graph.Effects             { return 0 }

func (fused) Outputs(in []device.Spec) ([]device.Spec, error) {
	q, k, v := in[0], in[1], in[2]
	for _, s := range in[:3] {
		if len(s.Shape) != 4 {
			return nil, fmt.Errorf("want q, k and v of [batch, tokens, heads, width], have %v × %v × %v", q, k, v)
		}
		if s.DType != q.DType || s.DType != device.Float32 && s.DType != device.Float64 {
			return nil, fmt.Errorf("want q, k and v in float32 or in float64, have %v × %v × %v", q, k, v)
		}
		if s.Rows != 0 || s.Place != device.OnDevice {
			return nil, fmt.Errorf("want static tensors on the device, have %v × %v × %v", q, k, v)
		}
	}
	switch {
	case k.Shape[0] != q.Shape[0] || v.Shape[0] != q.Shape[0]:
		return nil, fmt.Errorf("batches differ: %v × %v × %v", q, k, v)
	case k.Shape[1] != v.Shape[1] || k.Shape[2] != v.Shape[2]:
		return nil, fmt.Errorf("keys and values differ in tokens or heads: %v × %v", k, v)
	case k.Shape[3] != q.Shape[3]:
		return nil, fmt.Errorf("queries and keys differ in width: %v × %v", q, k)
	case k.Shape[2] == 0 || q.Shape[2]%k.Shape[2] != 0:
		return nil, fmt.Errorf("%d query heads are no multiple of %d key heads: %v × %v", q.Shape[2], k.Shape[2], q, k)
	}
	out := q.WithShape(q.Shape[0], q.Shape[1], q.Shape[2], v.Shape[3])
	return []device.Spec{out, q.WithShape(q.Shape[0], q.Shape[2], q.Shape[1])}, nil
}

// matrices returns B·H times the pairs that are computed, and those of the model.
func (m staticMask) matrices(q, k device.Spec) (executed, model float64) {
	heads := float64(q.Shape[0]) * float64(q.Shape[2])
	return heads * m.pairs(q.Shape[1], k.Shape[1]), heads * float64(q.Shape[1]) * float64(k.Shape[1])
}

func (o fused) Cost(in []device.Spec) graph.Cost {
	executed, model := o.mask.matrices(in[0], in[1])
	width := float64(in[0].Last() + in[2].Last())
	out, _ := o.Outputs(in)
	c := graph.Traffic(2*executed*width, in, out)
	c.ModelFLOPs = 2 * model * width
	return c
}

func (o fused) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Attention(out[0], out[1], in[0], in[1], in[2], o.mask.device(in[3:]), o.scale)
	return nil
}

func (o fused) Gradient(b *graph.Builder, in, out, grad []graph.Value) []graph.Value {
	back := make([]graph.Value, len(in)) // None for the borders
	if !grad[1].IsNone() {
		b.Fail("attention: its log-sum-exp cannot be differentiated")
		return back
	}
	args := append([]graph.Value{in[0], in[1], in[2], out[0], out[1], grad[0]}, in[3:]...)
	copy(back, b.ApplyAll(fusedBackward(o), args...)[:3])
	return back
}

// fusedBackward computes dq, dk and dv from q, k, v, out, lse, dout and perhaps the
// borders of documents.
type fusedBackward fused

func (fusedBackward) Kind() string           { return "attention_backward" }
func (fusedBackward) Effects() graph.Effects { return 0 }

func (fusedBackward) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:3], nil }

func (fusedBackward) Workspace(in []device.Spec, _ int) int64 {
	lse := in[4]
	return max(1, device.AttentionWorkspace(lse.DType, lse.Shape[0], lse.Shape[1], lse.Shape[2]))
}

func (o fusedBackward) Cost(in []device.Spec) graph.Cost {
	executed, model := o.mask.matrices(in[0], in[1])
	qk, v := float64(in[0].Last()), float64(in[2].Last())
	c := graph.Traffic(2*executed*(3*qk+2*v), in, in[:3])
	c.ModelFLOPs = 4 * model * (qk + v)
	return c
}

func (o fusedBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	lse := in[4]
	ws := x.Scratch(0, lse.DType(), lse.Len())
	x.AttentionBackward(out[0], out[1], out[2], in[0], in[1], in[2], in[3], lse, in[5], o.mask.device(in[6:]), o.scale, ws)
	return nil
}
