package moe

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// Experts are E SwiGLU feed-forward networks over rows that are grouped by expert:
// y = (silu(x·w1ᵀ) ∘ (x·w3ᵀ))·w2ᵀ with the parameters w1 [E, F, D], w2 [E, D, F] and
// w3 [E, F, D], of which the Store's Layout may give this rank only some experts.
type Experts struct {
	Experts, Hidden int
	// Init of w1, OutputInit of w2 and w3; nil is torchtitan's.
	Init, OutputInit graph.Initializer
}

// Build runs rows [N, D] through their experts; counts int32 [local experts] says how
// many rows each has, in order.
func (e Experts) Build(b *graph.Builder, rows, counts graph.Value) graph.Value {
	d, dtype := rows.Dim(-1), rows.Spec().DType
	if e.Hidden < 1 || e.Experts < 1 {
		return b.Fail("experts: %d experts with %d hidden units: want 1 or more of both", e.Experts, e.Hidden)
	}
	w1 := b.Parameter("w1", dtype, nn.LinearInit(e.Init), e.Experts, e.Hidden, d)
	w2 := b.Parameter("w2", dtype, nn.LinearInit(e.OutputInit), e.Experts, d, e.Hidden)
	w3 := b.Parameter("w3", dtype, nn.LinearInit(e.OutputInit), e.Experts, e.Hidden, d)
	gate := b.Apply(groupedMatMul{}, rows, w1, counts)
	up := b.Apply(groupedMatMul{}, rows, w3, counts)
	return b.Apply(groupedMatMul{}, nn.SwiGLU(gate, up), w2, counts)
}

// groupedMatMul computes y = x·w[e]ᵀ for the rows x [N, in] of each expert e, with
// w [E, out, in].
type groupedMatMul struct{ graph.Pure }

func (groupedMatMul) Kind() string { return "grouped_matmul" }

func (groupedMatMul) Outputs(in []device.Spec) ([]device.Spec, error) {
	x, w, counts := in[0], in[1], in[2]
	if len(x.Shape) != 2 || len(w.Shape) != 3 || x.Shape[1] != w.Shape[2] || x.DType != w.DType {
		return nil, fmt.Errorf("want rows [N, in] and weights [E, out, in], have %v × %v", x, w)
	}
	if counts.DType != device.Int32 || len(counts.Shape) != 1 || counts.Shape[0] != w.Shape[0] {
		return nil, fmt.Errorf("want a count for each of %d experts, have %v", w.Shape[0], counts)
	}
	return []device.Spec{x.WithShape(x.Shape[0], w.Shape[1])}, nil
}

func (groupedMatMul) Cost(in []device.Spec) graph.Cost {
	return groupedCost(in, in[0].Shape[0], in[1].Shape[1], in[1].Shape[2])
}

// groupedCost is that of n rows times matrices of out×in.
func groupedCost(in []device.Spec, n, out, width int) graph.Cost {
	flops := 2 * float64(n) * float64(out) * float64(width)
	c := graph.Traffic(flops, in, nil)
	c.ModelFLOPs = flops
	return c
}

func (groupedMatMul) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.GroupedMatMul(out[0], in[0], in[1].Transpose(1, 2), in[2])
	return nil
}

func (groupedMatMul) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{
		b.Apply(groupedInput{}, grad[0], in[1], in[2]),
		b.Apply(groupedWeight{weight: in[1].Spec()}, grad[0], in[0], in[2]),
		graph.None,
	}
}

// groupedInput computes dx = dy·w[e].
type groupedInput struct{ graph.Pure }

func (groupedInput) Kind() string { return "grouped_matmul" }
func (groupedInput) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{in[0].WithShape(in[0].Shape[0], in[1].Shape[2])}, nil
}
func (groupedInput) Cost(in []device.Spec) graph.Cost {
	return groupedCost(in, in[0].Shape[0], in[1].Shape[1], in[1].Shape[2])
}
func (groupedInput) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.GroupedMatMul(out[0], in[0], in[1], in[2])
	return nil
}

// groupedWeight computes dw[e] = dyᵀ·x over the rows of e.
type groupedWeight struct {
	graph.Pure
	weight device.Spec // of w
}

func (groupedWeight) Kind() string { return "grouped_matmul" }
func (g groupedWeight) Outputs([]device.Spec) ([]device.Spec, error) {
	return []device.Spec{g.weight}, nil
}
func (g groupedWeight) Cost(in []device.Spec) graph.Cost {
	return groupedCost(in[:2], in[0].Shape[0], g.weight.Shape[1], g.weight.Shape[2])
}
func (groupedWeight) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.GroupedMatMulWeight(out[0], in[0], in[1], in[2])
	return nil
}
