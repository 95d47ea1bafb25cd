package nn_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// buildRows is a small model on rows of width 4.
func buildRows(b *graph.Builder, x, labels graph.Value) {
	h := nn.RMSNorm(b.Scope("norm"), x, 0)
	h = nn.Add(x, nn.FeedForward{Hidden: 6}.Build(b.Scope("ffn"), h))
	h = nn.AddBias(b.Scope("bias"), nn.Dropout(b, h, 0.3))
	square := nn.Linear(b.Scope("square"), nn.Softmax(nn.Mul(h, h)), 4, nil)
	mixed := nn.MatMul(square, b.Parameter("mix", device.Float64, graph.Normal{Std: 1}, 4, 4), false, true)
	embedded := nn.Embedding(b.Scope("embed"), labels, nn.EmbeddingConfig{Vocab: 9, Dim: 4, DType: device.Float64})
	scale := b.State("scale", device.Float64, graph.Constant(0.1))
	b.AddLoss("loss", nn.OutputLoss(b.Scope("output"), nn.Add(mixed, embedded), labels, scale, nn.OutputLossConfig{Vocab: 9}))
	for i, g := range b.Backward(b.Parameters()...) {
		b.Output(fmt.Sprint("gradient ", i), g)
	}
}

// TestDynamicRows compares a graph with a live row count with graphs of exactly
// that many rows.
func TestDynamicRows(t *testing.T) {
	const bound = 300
	store := newStore(t, 2)
	b := graph.New(store)
	rows := b.Rows("tokens", bound)
	buildRows(b, b.RowsInput("x", rows, device.Float64, bound, 4), b.RowsInput("labels", rows, device.Int32, bound))
	dynamic := newMachine(t, b)
	for _, n := range []int{0, 1, 65, 257, bound} {
		b := graph.New(store)
		buildRows(b, b.Input("x", device.Float64, n, 4), b.Input("labels", device.Int32, n))
		static := newMachine(t, b)
		check(t, dynamic.SetRows(rows, n))
		for i := range n {
			for _, m := range []*graph.Machine{dynamic, static} {
				device.Elements[int32](m.Input("labels"))[i] = int32(i * 5 % 9)
				for j := range 4 {
					device.Elements[float64](m.Input("x"))[4*i+j] = float64((7*i+3*j)%11) / 5
				}
			}
		}
		run(t, dynamic, 1)
		run(t, static, 1)
		if got, want := dynamic.Scalar("loss"), static.Scalar("loss"); got != want {
			t.Errorf("%d rows: loss %v, a static graph gives %v", n, got, want)
		}
		for i := range len(store.Variables()) - 1 {
			name := fmt.Sprint("gradient ", i)
			if got, want := floats(dynamic, name), floats(static, name); !slices.Equal(got, want) {
				t.Errorf("%d rows: %s differs: %v, a static graph gives %v", n, name, got, want)
			}
		}
	}
}
