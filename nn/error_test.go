package nn_test

import (
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

func TestImpossibleGraphs(t *testing.T) {
	f32 := func(b *graph.Builder, name string, shape ...int) graph.Value {
		return b.Input(name, device.Float32, shape...)
	}
	cases := map[string]struct {
		build func(b *graph.Builder)
		want  []string
	}{
		"mul of unequal shapes": {
			func(b *graph.Builder) { nn.Mul(f32(b, "x", 2, 3), f32(b, "y", 3, 2)) },
			[]string{"mul: shapes differ: float32[2 3] × float32[3 2]"},
		},
		"mul of unequal dtypes": {
			func(b *graph.Builder) { nn.Mul(f32(b, "x", 2), b.Input("y", device.Float64, 2)) },
			[]string{"mul: dtypes differ: float32[2] × float64[2]"},
		},
		"mul of integers": {
			func(b *graph.Builder) { nn.Mul(b.Input("x", device.Int32, 2), b.Input("y", device.Int32, 2)) },
			[]string{"mul: want float32 or float64, have int32[2]"},
		},
		"scale by a vector": {
			func(b *graph.Builder) { nn.Scale(f32(b, "x", 2), f32(b, "y", 1)) },
			[]string{"scale: factor: want a scalar, have float32[1]"},
		},
		"scale by a host value": {
			func(b *graph.Builder) { nn.Scale(f32(b, "x", 2), b.HostInput("y", device.Float32)) },
			[]string{"scale: want a tensor on the device", "declare it with Input"},
		},
		"cross_entropy of labels for other rows": {
			func(b *graph.Builder) { nn.CrossEntropy(f32(b, "x", 2, 3, 5), b.Input("l", device.Int32, 3, 2), 0) },
			[]string{"cross_entropy: want logits [..., V] and labels [...], have float32[2 3 5] × int32[3 2]"},
		},
		"cross_entropy of labels that are no indices": {
			func(b *graph.Builder) { nn.CrossEntropy(f32(b, "x", 2, 5), f32(b, "l", 2), 0) },
			[]string{"cross_entropy: labels: want int32"},
		},
		"matmul of unequal inner extents": {
			func(b *graph.Builder) {
				nn.MatMul(f32(b.Scope("layers", 3), "x", 2, 3), f32(b, "y", 4, 3), true, false)
			},
			[]string{"layers.3: matmul: inner extents 2 and 4 differ: float32[2 3]ᵀ × float32[4 3]"},
		},
		"matmul of unequal batches": {
			func(b *graph.Builder) { nn.MatMul(f32(b, "x", 2, 3, 4), f32(b, "y", 3, 4, 5), false, false) },
			[]string{"matmul: batches differ"},
		},
		"matmul of vectors": {
			func(b *graph.Builder) { nn.MatMul(f32(b, "x", 3), f32(b, "y", 3), false, false) },
			[]string{"matmul: want two matrices or two batches"},
		},
		"linear of a scalar": {
			func(b *graph.Builder) { nn.Linear(b.Scope("wq"), f32(b, "x"), 2, nil) },
			[]string{"wq: linear: want x [..., in]", "float32[]"},
		},
		"linear without outputs": {
			func(b *graph.Builder) { nn.Linear(b.Scope("wq"), f32(b, "x", 2), 0, nil) },
			[]string{"wq: linear: 0 outputs"},
		},
		"linear of nothing": {
			func(b *graph.Builder) { nn.Linear(b.Scope("wq"), graph.None, 2, nil) },
			[]string{"wq: linear: the input is absent"},
		},
		"linear under a taken name": {
			func(b *graph.Builder) {
				nn.Linear(b.Scope("wq"), f32(b, "x", 2, 4), 8, nil)
				nn.Linear(b.Scope("wq"), f32(b, "y", 2, 4), 6, nil)
			},
			[]string{`"wq.weight" is a parameter float32[8 4]`, "[6 4]"},
		},
		"linear of ids": {
			func(b *graph.Builder) { nn.Linear(b.Scope("wq"), b.Input("x", device.Int32, 2, 4), 8, nil) },
			[]string{"wq: matmul: want float32 or float64, have int32[2 4]"},
		},
		"embedding of floats": {
			func(b *graph.Builder) { nn.Embedding(b, f32(b, "x", 2), nn.EmbeddingConfig{Vocab: 3, Dim: 2}) },
			[]string{"embedding: ids: want int32 on the device, have float32[2]"},
		},
		"embedding without a size": {
			func(b *graph.Builder) { nn.Embedding(b, b.Input("x", device.Int32, 2), nn.EmbeddingConfig{Vocab: 3}) },
			[]string{"embedding: a table of 3 rows and 0 columns: set Vocab and Dim"},
		},
		"rms_norm of a scalar": {
			func(b *graph.Builder) { nn.RMSNorm(b, f32(b, "x"), 0) },
			[]string{"rms_norm: want at least one dimension"},
		},
		"rms_norm with a negative epsilon": {
			func(b *graph.Builder) { nn.RMSNorm(b, f32(b, "x", 2), -1) },
			[]string{"rms_norm: epsilon -1: want more than 0"},
		},
		"swiglu of unequal shapes": {
			func(b *graph.Builder) { nn.SwiGLU(f32(b, "x", 2), f32(b, "y", 3)) },
			[]string{"swiglu: shapes differ"},
		},
		"feed_forward without hidden units": {
			func(b *graph.Builder) { nn.FeedForward{}.Build(b, f32(b, "x", 2, 3)) },
			[]string{"feed_forward: 0 hidden units: set Hidden"},
		},
		"dropout of everything": {
			func(b *graph.Builder) { nn.Dropout(b, f32(b, "x", 2), 1) },
			[]string{"dropout: probability 1: want 0 or more and less than 1"},
		},
		"dropout of NaN": {
			func(b *graph.Builder) { nn.Dropout(b, f32(b, "x", 2), math.NaN()) },
			[]string{"dropout: probability NaN"},
		},
		"output_loss of other labels": {
			func(b *graph.Builder) {
				nn.OutputLoss(b.Scope("output"), f32(b, "x", 2, 3, 4), b.Input("l", device.Int32, 6), f32(b, "s"), nn.OutputLossConfig{Vocab: 5})
			},
			[]string{"output: output_loss: want hidden [..., D] and labels [...], have float32[2 3 4] × int32[6]"},
		},
		"output_loss of float labels": {
			func(b *graph.Builder) {
				nn.OutputLoss(b, f32(b, "x", 3, 4), f32(b, "l", 3), f32(b, "s"), nn.OutputLossConfig{Vocab: 5})
			},
			[]string{"output_loss: labels: want int32"},
		},
		"output_loss without a vocabulary": {
			func(b *graph.Builder) {
				nn.OutputLoss(b, f32(b, "x", 3, 4), b.Input("l", device.Int32, 3), f32(b, "s"), nn.OutputLossConfig{})
			},
			[]string{"output_loss: 0 classes: set Vocab"},
		},
		"output_loss with another table": {
			func(b *graph.Builder) {
				w := b.Parameter("w", device.Float32, graph.Zeros, 5, 6)
				nn.OutputLoss(b, f32(b, "x", 3, 4), b.Input("l", device.Int32, 3), f32(b, "s"), nn.OutputLossConfig{Weight: w})
			},
			[]string{"output_loss: want hidden [..., D] and weight [V, D], have float32[3 4] × float32[5 6]"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := graph.New(newStore(t, 1))
			c.build(b)
			if b.Err() == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(b.Err().Error(), want) {
					t.Errorf("error %q does not say %q", b.Err(), want)
				}
			}
			if !strings.Contains(b.Err().Error(), "error_test.go:") {
				t.Errorf("error %q does not say where", b.Err())
			}
		})
	}
}

// TestPoisonedValues builds on behind an error.
func TestPoisonedValues(t *testing.T) {
	b := graph.New(newStore(t, 1))
	x := nn.Linear(b.Scope("first"), graph.None, 3, nil)
	x = nn.RMSNorm(b, nn.FeedForward{Hidden: 2}.Build(b, nn.Softmax(nn.SwiGLU(x, x))), 0)
	x = nn.AddBias(b, nn.Dropout(b, nn.Scale(nn.MatMul(x, x, false, true), x), 0.5))
	x = nn.OutputLoss(b, nn.Embedding(b, x, nn.EmbeddingConfig{}), x, x, nn.OutputLossConfig{})
	b.AddLoss("loss", nn.Mul(x, x))
	if x.Node() != nil || !strings.HasPrefix(b.Err().Error(), "graph: first: linear:") {
		t.Errorf("error %v, want that of the first linear", b.Err())
	}
}
