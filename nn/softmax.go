package nn

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Softmax returns exp(x) / Σ exp(x) over the last dimension of x [..., D].
func Softmax(x graph.Value) graph.Value { return graph.At(x).Apply(softmax{}, x) }

type softmax struct{ graph.Pure }

func (softmax) Kind() string { return "softmax" }

func (softmax) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := wantRows(in[0]); err != nil {
		return nil, err
	}
	return in[:1], wantFloats(in...)
}

func (softmax) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(5*float64(in[0].Len()), in, in[:1])
}

func (softmax) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Softmax(out[0], in[0])
	return nil
}

func (softmax) Gradient(b *graph.Builder, _, out, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(softmaxBackward{}, out[0], grad[0])}
}

// softmaxBackward computes dx from y and dy.
type softmaxBackward struct{ graph.Pure }

func (softmaxBackward) Kind() string { return "softmax_backward" }

func (softmaxBackward) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], nil }

func (softmaxBackward) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(4*float64(in[0].Len()), in, in[:1])
}

func (softmaxBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.SoftmaxBackward(out[0], in[0], in[1])
	return nil
}
