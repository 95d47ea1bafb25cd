package nn

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// LinearInit returns init or, if it is nil, torchtitan's initial value of linear layers:
// normal with a deviation of 0.02, cut at ±2.
func LinearInit(init graph.Initializer) graph.Initializer {
	if init == nil {
		return graph.TruncatedNormal{Std: 0.02, Low: -2, High: 2}
	}
	return init
}

// Linear returns x·weightᵀ for x [..., in] and the parameter `weight` [out, in]:
// [..., out]. A nil init is torchtitan's: normal with a deviation of 0.02, cut at
// ±2. For a bias, pass the result to [AddBias].
//
// Forward and both gradients are one op each, of the kind matmul; they flatten
// leading dimensions as they run, so there are no reshapes in the graph.
func Linear(b *graph.Builder, x graph.Value, out int, init graph.Initializer) graph.Value {
	return LinearFrom(b, x, x.Spec().Last(), out, init)
}

// LinearFrom is Linear for columns that ranks may share: in of them are the whole, of which x
// [..., columns] has this rank's. The Store's Layout gives the rank the same columns of the
// weight [out, in] then, and the result is its term of a sum.
func LinearFrom(b *graph.Builder, x graph.Value, in, out int, init graph.Initializer) graph.Value {
	if v, bad := refuse(b, "linear", x); bad {
		return v
	}
	if len(x.Shape()) == 0 {
		return b.Fail("linear: want x [..., in], have the scalar %v", x.Spec())
	}
	if out <= 0 {
		return b.Fail("linear: %d outputs: want 1 or more", out)
	}
	w := b.Parameter("weight", x.Spec().DType, LinearInit(init), out, in)
	return b.Apply(linear{}, x, w)
}

// linear computes y = x·wᵀ from x [..., in] and w [out, in].
type linear struct{ graph.Pure }

func (linear) Kind() string { return "matmul" }

func (linear) Outputs(in []device.Spec) ([]device.Spec, error) {
	x, w := in[0], in[1]
	if err := wantFloats(in...); err != nil {
		return nil, err
	}
	if len(x.Shape) == 0 || len(w.Shape) != 2 || w.Rows != 0 || x.Last() != w.Shape[1] {
		return nil, fmt.Errorf("want x [..., in] and weight [out, in], have %v × %v", x, w)
	}
	if x.Rows != 0 && len(x.Shape) == 1 {
		return nil, fmt.Errorf("want static columns, have %v", x)
	}
	return []device.Spec{withLast(x, w.Shape[0])}, nil
}

func (linear) Cost(in []device.Spec) graph.Cost {
	return matmulCost(in, rowsOf(in[0]), in[1].Shape[0], in[1].Shape[1])
}

func (linear) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.MatMul(out[0].Matrix(), in[0].Matrix(), in[1].Transpose(0, 1), false)
	return nil
}

// Gradient builds dx and dw as two ops, so that one that nobody needs is dropped.
func (linear) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{
		b.Apply(linearInput{}, grad[0], in[1]),
		b.Apply(linearWeight{}, grad[0], in[0]),
	}
}

// linearInput computes dx = dy·w from dy [..., out] and w [out, in].
type linearInput struct{ graph.Pure }

func (linearInput) Kind() string { return "matmul" }

func (linearInput) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{withLast(in[0], in[1].Shape[1])}, nil
}

func (linearInput) Cost(in []device.Spec) graph.Cost {
	return matmulCost(in, rowsOf(in[0]), in[1].Shape[1], in[1].Shape[0])
}

func (linearInput) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.MatMul(out[0].Matrix(), in[0].Matrix(), in[1], false)
	return nil
}

// linearWeight computes dw = dyᵀ·x from dy [..., out] and x [..., in].
type linearWeight struct{ graph.Pure }

func (linearWeight) Kind() string { return "matmul" }

func (linearWeight) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(in[0].DType, in[0].Last(), in[1].Last())}, nil
}

func (linearWeight) Cost(in []device.Spec) graph.Cost {
	return matmulCost(in, in[0].Last(), in[1].Last(), rowsOf(in[0]))
}

func (linearWeight) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.MatMul(out[0], in[0].Matrix().Transpose(0, 1), in[1].Matrix(), false)
	return nil
}
