package moe

import (
	"fmt"
	"strings"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// States of a layer, by scope.
const (
	tokensPerExpert = "tokens_per_expert"  // of this optimizer step so far
	lastLoad        = "load"               // of the last optimizer step, over all ranks
	expertBias      = "router.expert_bias" // moves the choice
)

// Balance ends an optimizer step for every layer that the Store has counted: the counts
// of all ranks are added (g may be nil for one rank), the router's bias moves by
//
//	d_e = step · sign(mean(c) − c_e);  b ← b + d − mean(d)
//
// and the counts become the state `load` and begin anew. A layer without bias only
// keeps its load. Call it while building the Program that updates the parameters.
// (Wang et al. 2024, arXiv 2408.15664, algorithm 1, with torchtitan's zero-mean step.)
func Balance(b *graph.Builder, g collective.Group, step float64) {
	for _, v := range b.Store().Variables() {
		layer, ok := strings.CutSuffix(v.Name, "."+tokensPerExpert)
		if !ok {
			continue
		}
		counts := b.Variable(v)
		if g != nil && g.Size() > 1 {
			collective.AllReduceState(b, g, counts)
		}
		load := b.Scope(layer).State(lastLoad, v.Spec.DType, graph.Zeros, v.Spec.Shape...)
		in := []graph.Value{counts, load}
		if bias := b.Store().Variable(layer + "." + expertBias); bias != nil {
			in = append(in, b.Variable(bias))
		}
		b.Scope(layer).Apply(balance{step: step, writes: len(in)}, in...)
	}
}

// balance has the inputs counts, load and, optionally, bias, all of which it writes.
type balance struct {
	step   float64
	writes int // number of inputs
}

func (balance) Kind() string           { return "balance" }
func (balance) Effects() graph.Effects { return 0 }
func (o balance) Mutates() []int       { return []int{0, 1, 2}[:o.writes] }
func (balance) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(4*float64(in[0].Len()), in, in)
}
func (balance) Workspace(in []device.Spec, _ int) int64 {
	if len(in) < 3 {
		return 0
	}
	return in[2].Bytes() // the counts in the bias's dtype
}

func (balance) Outputs(in []device.Spec) ([]device.Spec, error) {
	if len(in) > 2 && in[2].Len() != in[0].Len() {
		return nil, fmt.Errorf("%d counts for a bias %v", in[0].Len(), in[2])
	}
	return graph.TokenOutput(), nil
}

func (o balance) Run(x *graph.Exec, _, in []device.Tensor) error {
	x.Copy(in[1], in[0])
	if len(in) > 2 {
		counts := x.Scratch(0, in[2].DType(), in[0].Len())
		x.Copy(counts, in[0])
		x.BalanceBias(in[2], counts, o.step)
	}
	x.Fill(in[0], 0)
	return nil
}
