package nn

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Add returns a + b for values of equal shape and dtype.
func Add(a, b graph.Value) graph.Value { return graph.Add(a, b) }

// Mul returns a · b, elementwise, for values of equal shape and dtype.
func Mul(a, b graph.Value) graph.Value { return graph.At(a).Apply(mul{}, a, b) }

type mul struct{ graph.Pure }

func (mul) Kind() string { return "mul" }

func (mul) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], wantSame(in...) }

func (mul) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, in[:1])
}

func (mul) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Binary(device.Mul, out[0], in[0], in[1])
	return nil
}

func (mul) Gradient(_ *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{Mul(grad[0], in[1]), Mul(grad[0], in[0])}
}

// Scale returns x times the scalar Value factor, which has x's dtype.
func Scale(x, factor graph.Value) graph.Value { return graph.At(x).Apply(scale{}, x, factor) }

type scale struct{ graph.Pure }

func (scale) Kind() string { return "scale" }

func (scale) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := wantFloats(in...); err != nil {
		return nil, err
	}
	return in[:1], wantScalar("factor", in[1])
}

func (scale) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, in[:1])
}

func (scale) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Binary(device.Mul, out[0], in[0], in[1].BroadcastTo(out[0]))
	return nil
}

func (scale) Gradient(_ *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{Scale(grad[0], in[1]), graph.Sum(Mul(grad[0], in[0]))}
}

// AddBias returns x + bias for x [..., D] and the parameter `bias` [D], which
// begins as zeros.
func AddBias(b *graph.Builder, x graph.Value) graph.Value {
	if v, bad := refuse(b, "add_bias", x); bad {
		return v
	}
	return b.Apply(addRow{}, x, b.Parameter("bias", x.Spec().DType, graph.Zeros, x.Spec().Last()))
}

// addRow adds one row to every row.
type addRow struct{ graph.Pure }

func (addRow) Kind() string { return "add" }

func (addRow) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := wantRows(in[0]); err != nil {
		return nil, err
	}
	return in[:1], wantFloats(in...)
}

func (addRow) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, in[:1])
}

func (addRow) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Binary(device.Add, out[0], in[0], in[1].BroadcastTo(out[0]))
	return nil
}

func (addRow) Gradient(b *graph.Builder, _, _, grad []graph.Value) []graph.Value {
	return []graph.Value{grad[0], b.Apply(sumRows{}, grad[0])}
}

// sumRows adds all rows of [..., D] to one row [D].
type sumRows struct{ graph.Pure }

func (sumRows) Kind() string { return "sum" }

func (sumRows) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(in[0].DType, in[0].Last())}, nil
}

func (sumRows) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, nil)
}

func (sumRows) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Sum(out[0].Reshape(1, out[0].Dim(0)), in[0].Matrix())
	return nil
}
