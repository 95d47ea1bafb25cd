package train

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// This file holds the ops of the norm and update Programs. They read gradients
// from scratch variables and write parameters and moments.

// Names of what an optimizer step keeps in the Store besides the parameters.
const (
	gradientPrefix = "gradient."
	meanPrefix     = "optimizer.exp_avg."
	squarePrefix   = "optimizer.exp_avg_sq."
	clipVariable   = "optimizer.clip_factor"
)

// globalNorm is the L2 norm of all its inputs taken together, in their dtype:
// sqrt(Σ over inputs Σ x²). Sums are float64 throughout, one partial sum an input,
// added in the order of the inputs.
type globalNorm struct{}

func (globalNorm) Kind() string           { return "global_norm" }
func (globalNorm) Effects() graph.Effects { return 0 }

func (globalNorm) Outputs(in []device.Spec) ([]device.Spec, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("nothing to take the norm of")
	}
	for _, s := range in {
		if !s.DType.IsFloat() || s.DType != in[0].DType {
			return nil, fmt.Errorf("want floats of one dtype, have %v × %v", in[0], s)
		}
	}
	return []device.Spec{device.NewSpec(in[0].DType)}, nil
}

func (globalNorm) Workspace(in []device.Spec, _ int) int64 {
	return int64(len(in)+1) * int64(device.Float64.Size())
}

func (globalNorm) Cost(in []device.Spec) graph.Cost {
	var elements float64
	for _, s := range in {
		elements += float64(s.Len())
	}
	return graph.Traffic(2*elements, in, nil)
}

func (globalNorm) Run(x *graph.Exec, out, in []device.Tensor) error {
	size := int64(device.Float64.Size())
	for i, t := range in {
		x.SumSquares(x.Scratch(int64(i)*size, device.Float64), t)
	}
	total := x.Scratch(int64(len(in))*size, device.Float64, 1)
	x.Sum(total, x.Scratch(0, device.Float64, len(in)))
	x.Unary(device.Sqrt, total, total)
	x.Copy(out[0], total.Reshape())
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

// adamW updates its inputs parameter, mean and square from gradient, the learning
// rate (a float64 scalar on the host) and, if there is a sixth input, the factor
// on the gradient. The time t of the bias correction is the optimizer step.
type adamW struct {
	graph.Pure
	beta1, beta2, eps, weightDecay float64
}

func (adamW) Kind() string   { return "adamw" }
func (adamW) Mutates() []int { return []int{0, 1, 2} }

func (adamW) Outputs(in []device.Spec) ([]device.Spec, error) {
	for _, s := range in[1:4] {
		if !s.Equal(in[0]) {
			return nil, fmt.Errorf("parameter, moments and gradient differ: %v × %v", in[0], s)
		}
	}
	return graph.TokenOutput(), nil
}

func (adamW) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(15*float64(in[0].Len()), in[:4], in[:3])
}

func (o adamW) Run(x *graph.Exec, _, in []device.Tensor) error {
	var factor device.Tensor
	if len(in) > 5 {
		factor = in[5]
	}
	x.AdamW(in[0], in[1], in[2], in[3], factor, device.AdamW{
		LearningRate: device.Elements[float64](in[4])[0],
		Beta1:        o.beta1, Beta2: o.beta2, Epsilon: o.eps, WeightDecay: o.weightDecay,
		Step: int(x.Step),
	})
	return nil
}
