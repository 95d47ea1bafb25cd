package moe_test

import (
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/gradcheck"
	"github.com/lethe-go/lethe/moe"
)

// wide draws gate weights so far apart that a small change of the inputs changes no
// choice.
var wide = graph.Normal{Std: 2}

func TestLayerGradients(t *testing.T) {
	for name, r := range map[string]moe.Router{
		"softmax":        {Experts: 4, TopK: 2},
		"sigmoid":        {Experts: 4, TopK: 2, Score: moe.Sigmoid, Normalize: true, Scale: 2.5, Bias: true},
		"softmax, norm":  {Experts: 5, TopK: 3, Normalize: true},
		"groups":         {Experts: 8, TopK: 2, Score: moe.Sigmoid, Groups: 4, LimitedGroups: 2},
		"forced balance": {Experts: 4, TopK: 2, ForceBalance: true},
		"one expert":     {Experts: 1, TopK: 1, Score: moe.Sigmoid},
	} {
		t.Run(name, func(t *testing.T) {
			r.Init = wide
			gradcheck.Run(t, gradcheck.Case{
				Inputs: [][]int{{2, 4, 6}},
				Build: func(b *graph.Builder, _ device.DType, in []graph.Value) []graph.Value {
					l := moe.Layer{Router: r, Hidden: 3, Shared: 2, Init: graph.Normal{Std: 0.5}, OutputInit: graph.Normal{Std: 0.5}}
					return []graph.Value{l.Build(b, in[0])}
				},
			})
		})
	}
}
