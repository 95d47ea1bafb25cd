package attention_test

import (
	"fmt"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/gradcheck"
)

func TestRoPEGradients(t *testing.T) {
	for _, layout := range []device.RoPELayout{device.AdjacentPairs, device.RotateHalf} {
		for _, dims := range []int{0, 4} {
			t.Run(fmt.Sprint(layout, dims), func(t *testing.T) {
				gradcheck.Run(t, gradcheck.Case{
					Inputs: [][]int{{2, 3, 2, 6}},
					Build: func(b *graph.Builder, _ device.DType, in []graph.Value) []graph.Value {
						r := attention.RoPE{Theta: 100, Dims: dims, Layout: layout}
						return []graph.Value{r.Rotate(b, in[0], graph.None)}
					},
				})
			})
		}
	}
}

// documents are the borders of two packed sequences of 5 tokens.
var (
	starts = []int32{0, 0, 2, 2, 2, 0, 0, 0, 3, 3}
	ends   = []int32{2, 2, 5, 5, 5, 3, 3, 3, 5, 5}
)

func TestFusedGradients(t *testing.T) {
	masks := map[string]attention.Mask{
		"none":   {},
		"causal": {Causal: true},
		"window": {Causal: true, Window: 2},
		"block":  {Block: 2},
	}
	for name, mask := range masks {
		t.Run(name, func(t *testing.T) {
			gradcheck.Run(t, gradcheck.Case{
				Inputs: [][]int{{2, 5, 4, 3}, {2, 5, 2, 3}, {2, 5, 2, 2}},
				Build: func(b *graph.Builder, _ device.DType, in []graph.Value) []graph.Value {
					return []graph.Value{attention.Fused(b, in[0], in[1], in[2], mask, 0)}
				},
			})
		})
	}
	t.Run("documents", func(t *testing.T) {
		gradcheck.Run(t, gradcheck.Case{
			Inputs: [][]int{{2, 5, 2, 3}, {2, 5, 1, 3}, {2, 5, 1, 3}},
			Feed:   map[string][]int32{"case.start": starts, "case.end": ends},
			Build: func(b *graph.Builder, _ device.DType, in []graph.Value) []graph.Value {
				mask := attention.Mask{Causal: true, DocumentStart: b.Input("start", device.Int32, 2, 5), DocumentEnd: b.Input("end", device.Int32, 2, 5)}
				return []graph.Value{attention.Fused(b, in[0], in[1], in[2], mask, 0.7)}
			},
		})
	})
	t.Run("fewer queries than keys", func(t *testing.T) {
		gradcheck.Run(t, gradcheck.Case{
			Inputs: [][]int{{1, 3, 2, 4}, {1, 7, 2, 4}, {1, 7, 2, 4}},
			Build: func(b *graph.Builder, _ device.DType, in []graph.Value) []graph.Value {
				return []graph.Value{attention.Fused(b, in[0], in[1], in[2], attention.Mask{}, 0)}
			},
		})
	})
}

func TestGQAGradients(t *testing.T) {
	init := graph.Normal{Std: 0.5}
	configs := map[string]attention.GQA{
		"one head":        {Heads: 1},
		"multi-query":     {Heads: 2, KVHeads: 1, Mask: attention.Mask{Causal: true}},
		"rotary":          {Heads: 2, RoPE: attention.RoPE{Theta: 50}, Mask: attention.Mask{Causal: true}},
		"norms and width": {Heads: 2, KVHeads: 1, HeadDim: 6, QKNorm: true, NormEpsilon: 1e-3, RoPE: attention.RoPE{Theta: 50, Layout: device.RotateHalf}},
	}
	for name, c := range configs {
		c.Init, c.OutputInit = init, init
		t.Run(name, func(t *testing.T) {
			gradcheck.Run(t, gradcheck.Case{
				Inputs: [][]int{{2, 5, 4}},
				Build: func(b *graph.Builder, _ device.DType, in []graph.Value) []graph.Value {
					return []graph.Value{c.Build(b, in[0])}
				},
			})
		})
	}
}
