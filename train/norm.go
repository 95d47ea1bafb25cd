package train

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// This file holds the ops of the norm Program. They read gradients from scratch
// variables and leave the clip factor in one.

// Names of what an optimizer step keeps in the Store besides parameters and moments.
const (
	gradientPrefix = "gradient."
	clipVariable   = "optimizer.clip_factor"
)

// sumSquares is Σ over inputs Σ x², a float64 scalar: one partial sum an input, added
// in the order of the inputs.
type sumSquares struct{}

func (sumSquares) Kind() string           { return "sum_squares" }
func (sumSquares) Effects() graph.Effects { return 0 }

func (sumSquares) Outputs(in []device.Spec) ([]device.Spec, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("nothing to take the norm of")
	}
	for _, s := range in {
		if !s.DType.IsFloat() || s.DType != in[0].DType {
			return nil, fmt.Errorf("want floats of one dtype, have %v × %v", in[0], s)
		}
	}
	return []device.Spec{device.NewSpec(device.Float64)}, nil
}

func (sumSquares) Workspace(in []device.Spec, _ int) int64 {
	return int64(len(in)) * int64(device.Float64.Size())
}

func (sumSquares) Cost(in []device.Spec) graph.Cost {
	var elements float64
	for _, s := range in {
		elements += float64(s.Len())
	}
	return graph.Traffic(2*elements, in, nil)
}

func (sumSquares) Run(x *graph.Exec, out, in []device.Tensor) error {
	for i, t := range in {
		x.SumSquares(x.Scratch(int64(i)*int64(device.Float64.Size()), device.Float64), t)
	}
	x.Sum(out[0].Reshape(1), x.Scratch(0, device.Float64, len(in)))
	return nil
}

// rootSum is the square root of the sum of float64 scalars, in a dtype: the global
// norm, from the sums of squares of its parts.
type rootSum struct{ dtype device.DType }

func (rootSum) Kind() string                     { return "global_norm" }
func (rootSum) Effects() graph.Effects           { return 0 }
func (rootSum) Cost(in []device.Spec) graph.Cost { return graph.Traffic(2, in, in[:1]) }

func (rootSum) Workspace([]device.Spec, int) int64 { return int64(device.Float64.Size()) }

func (r rootSum) Outputs([]device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(r.dtype)}, nil
}

func (rootSum) Run(x *graph.Exec, out, in []device.Tensor) error {
	total := x.Scratch(0, device.Float64)
	x.Copy(total, in[0])
	for _, t := range in[1:] {
		x.Binary(device.Add, total, total, t)
	}
	x.Unary(device.Sqrt, total, total)
	x.Copy(out[0], total)
	return nil
}

// clipFactor is min(1, max / norm).
type clipFactor struct {
	graph.Pure
	max float64
}

func (clipFactor) Kind() string                                      { return "clip_factor" }
func (clipFactor) Cost(in []device.Spec) graph.Cost                  { return graph.Traffic(2, in, in) }
func (c clipFactor) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], nil }

func (c clipFactor) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.ClipFactor(out[0], in[0], c.max)
	return nil
}
