package nn_test

import (
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/gradcheck"
	"github.com/lethe-go/lethe/nn"
)

// one is a Case's Build for one output.
func one(f func(b *graph.Builder, in []graph.Value) graph.Value) func(*graph.Builder, device.DType, []graph.Value) []graph.Value {
	return func(b *graph.Builder, _ device.DType, in []graph.Value) []graph.Value {
		return []graph.Value{f(b, in)}
	}
}

func TestGradients(t *testing.T) {
	cases := map[string]gradcheck.Case{
		"add": {Inputs: [][]int{{2, 3}, {2, 3}}, Build: one(func(_ *graph.Builder, in []graph.Value) graph.Value {
			return nn.Add(in[0], in[1])
		})},
		"mul": {Inputs: [][]int{{2, 3}, {2, 3}}, Build: one(func(_ *graph.Builder, in []graph.Value) graph.Value {
			return nn.Mul(in[0], in[1])
		})},
		"square": {Inputs: [][]int{{5}}, Build: one(func(_ *graph.Builder, in []graph.Value) graph.Value {
			return nn.Mul(in[0], in[0])
		})},
		"scale": {Inputs: [][]int{{2, 3}, {}}, Build: one(func(_ *graph.Builder, in []graph.Value) graph.Value {
			return nn.Scale(in[0], in[1])
		})},
		"bias": {Inputs: [][]int{{2, 3, 4}}, Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
			return nn.AddBias(b, in[0])
		})},
		"linear": {Inputs: [][]int{{2, 3, 4}}, Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
			return nn.Linear(b, in[0], 5, graph.Normal{Std: 1})
		})},
		"linear of a vector": {Inputs: [][]int{{4}}, Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
			return nn.Linear(b, in[0], 3, nil)
		})},
		"linear twice": {Inputs: [][]int{{3, 4}}, Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
			return nn.Linear(b, nn.Linear(b, in[0], 4, graph.Normal{Std: 1}), 4, graph.Normal{Std: 1})
		})},
		"rms_norm": {Inputs: [][]int{{2, 3, 5}}, Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
			return nn.RMSNorm(b, in[0], 1e-3)
		})},
		"rms_norm of many rows": {Inputs: [][]int{{67, 2}}, Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
			return nn.RMSNorm(b, in[0], 0.1)
		})},
		"swiglu": {Inputs: [][]int{{3, 4}, {3, 4}}, Build: one(func(_ *graph.Builder, in []graph.Value) graph.Value {
			return nn.SwiGLU(in[0], in[1])
		})},
		"feed_forward": {Inputs: [][]int{{2, 3, 4}}, Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
			return nn.FeedForward{Hidden: 6, Init: graph.Normal{Std: 0.5}, OutputInit: graph.Normal{Std: 0.5}}.Build(b, in[0])
		})},
		"softmax": {Inputs: [][]int{{2, 3, 7}}, Build: one(func(_ *graph.Builder, in []graph.Value) graph.Value {
			return nn.Softmax(in[0])
		})},
		"dropout": {Inputs: [][]int{{4, 5}}, Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
			return nn.Dropout(b, in[0], 0.4)
		})},
		"cross_entropy": {
			Inputs: [][]int{{2, 3, 7}},
			Feed:   map[string][]int32{"case.labels": {6, 0, -1, 3, 3, 6}},
			Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
				return nn.CrossEntropy(in[0], b.Input("labels", device.Int32, 2, 3), -1)
			}),
		},
		"embedding with repeated ids": {
			Feed: map[string][]int32{"case.ids": {3, 0, 3, 3, 1, 0}},
			Build: func(b *graph.Builder, d device.DType, _ []graph.Value) []graph.Value {
				ids := b.Input("ids", device.Int32, 2, 3)
				return []graph.Value{nn.Embedding(b, ids, nn.EmbeddingConfig{Vocab: 5, Dim: 3, DType: d})}
			},
		},
		"output_loss": {
			Inputs: [][]int{{2, 3, 4}, {}},
			Feed:   map[string][]int32{"case.labels": {6, 0, -100, 3, 3, 6}},
			Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
				labels := b.Input("labels", device.Int32, 2, 3)
				// The scale is a constant: nothing flows to it.
				scale := b.State("scale", in[0].Spec().DType, graph.Constant(0.2))
				return nn.Scale(nn.OutputLoss(b, in[0], labels, scale, nn.OutputLossConfig{Vocab: 7}), in[1])
			}),
		},
		"output_loss with a tied weight": {
			Inputs: [][]int{{7, 4}},
			Feed:   map[string][]int32{"case.labels": {0, 3, 5}},
			Build: one(func(b *graph.Builder, in []graph.Value) graph.Value {
				labels := b.Input("labels", device.Int32, 3)
				scale := b.State("scale", in[0].Spec().DType, graph.Constant(0.5))
				mix := b.State("mix", in[0].Spec().DType, graph.Uniform{Low: -1, High: 1}, 3, 7)
				hidden := nn.MatMul(mix, in[0], false, false)
				return nn.OutputLoss(b, hidden, labels, scale, nn.OutputLossConfig{Weight: in[0]})
			}),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { gradcheck.Run(t, c) })
	}
}

func TestMatMulGradients(t *testing.T) {
	shape := func(batch int, rows, columns int, transposed bool) []int {
		if transposed {
			rows, columns = columns, rows
		}
		if batch > 0 {
			return []int{batch, rows, columns}
		}
		return []int{rows, columns}
	}
	for _, batch := range []int{0, 3} {
		for i := range 4 {
			ta, tb := i&1 != 0, i&2 != 0
			gradcheck.Run(t, gradcheck.Case{
				Inputs: [][]int{shape(batch, 2, 3, ta), shape(batch, 3, 4, tb)},
				Build: one(func(_ *graph.Builder, in []graph.Value) graph.Value {
					return nn.MatMul(in[0], in[1], ta, tb)
				}),
			})
		}
	}
}
