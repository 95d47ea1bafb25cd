package nn

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// DefaultEpsilon is torchtitan's epsilon of RMSNorm.
const DefaultEpsilon = 1e-5

// RMSNorm returns x / sqrt(mean(x²) + eps) · weight over the last dimension of
// x [..., D]; the parameter `weight` [D] begins as ones. An eps of 0 is
// [DefaultEpsilon]. (Zhang, Sennrich 2019, eq. 4.)
func RMSNorm(b *graph.Builder, x graph.Value, eps float64) graph.Value {
	if v, bad := refuse(b, "rms_norm", x); bad {
		return v
	}
	if eps == 0 {
		eps = DefaultEpsilon
	}
	if eps < 0 {
		return b.Fail("rms_norm: epsilon %g: want more than 0", eps)
	}
	return b.Apply(rmsNorm{eps: eps}, x, b.Parameter("weight", x.Spec().DType, graph.Constant(1), x.Spec().Last()))
}

type rmsNorm struct {
	graph.Pure
	eps float64
}

func (rmsNorm) Kind() string { return "rms_norm" }

func (rmsNorm) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := wantFloats(in...); err != nil {
		return nil, err
	}
	if err := wantRows(in[0]); err != nil {
		return nil, err
	}
	if len(in[1].Shape) != 1 || in[0].Last() != in[1].Shape[0] {
		return nil, fmt.Errorf("want x [..., D] and weight [D], have %v × %v", in[0], in[1])
	}
	return in[:1], nil
}

func (rmsNorm) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(4*float64(in[0].Len()), in, in[:1])
}

func (o rmsNorm) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.RMSNorm(out[0], in[0], in[1], o.eps)
	return nil
}

func (o rmsNorm) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return b.ApplyAll(rmsNormBackward{eps: o.eps}, in[0], in[1], grad[0])[:2]
}

// rmsNormBackward computes dx and dweight from x, weight and dy.
type rmsNormBackward struct{ eps float64 }

func (rmsNormBackward) Kind() string           { return "rms_norm_backward" }
func (rmsNormBackward) Effects() graph.Effects { return 0 }
func (rmsNormBackward) Optional(int) bool      { return true }

func (rmsNormBackward) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:2], nil }

func (rmsNormBackward) Workspace(in []device.Spec, _ int) int64 {
	// Not even without rows is it empty: Run takes a view of it.
	return max(1, device.RMSNormWorkspace(in[0].DType, rowsOf(in[0]), in[0].Last()))
}

func (rmsNormBackward) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(11*float64(in[0].Len()), in, in[:2])
}

func (o rmsNormBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	// Partial sums are counted by the live rows, of which the bound is the most.
	width := in[0].Last()
	partials := device.RMSNormPartials(in[0].Matrix().Dim(0))
	ws := x.Scratch(0, in[0].DType(), partials, width)
	x.RMSNormBackward(out[0], out[1], in[0], in[1], in[2], o.eps, ws)
	return nil
}
