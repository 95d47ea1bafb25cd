package nn

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// SwiGLU returns silu(gate) · up, elementwise, for values of equal shape. (Shazeer
// 2020, "GLU Variants Improve Transformer".)
func SwiGLU(gate, up graph.Value) graph.Value { return graph.At(gate).Apply(swiGLU{}, gate, up) }

type swiGLU struct{ graph.Pure }

func (swiGLU) Kind() string { return "swiglu" }

func (swiGLU) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], wantSame(in...) }

func (swiGLU) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(5*float64(in[0].Len()), in, in[:1])
}

func (swiGLU) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.SwiGLU(out[0], in[0], in[1])
	return nil
}

func (swiGLU) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return b.ApplyAll(swiGLUBackward{}, in[0], in[1], grad[0])[:2]
}

// swiGLUBackward computes dgate and dup from gate, up and dy.
type swiGLUBackward struct{ graph.Pure }

func (swiGLUBackward) Kind() string { return "swiglu_backward" }

func (swiGLUBackward) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:2], nil }

func (swiGLUBackward) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(11*float64(in[0].Len()), in, in[:2])
}

func (swiGLUBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.SwiGLUBackward(out[0], out[1], in[0], in[1], in[2])
	return nil
}
