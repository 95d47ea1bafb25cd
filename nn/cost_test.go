package nn_test

import (
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// TestFLOPs counts 6·T·D·V for a layer whose input has a gradient, and for the
// output loss, and 4·T·D·V where the product for dx is dropped.
func TestFLOPs(t *testing.T) {
	const tokens, width, vocab = 6, 8, 10
	const product = 2 * tokens * width * vocab
	for _, c := range []struct {
		all  bool
		want float64
	}{{true, 6 * product}, {false, 5 * product}} {
		b := graph.New(newStore(t, 1))
		x := b.Parameter("x", device.Float32, graph.Zeros, 2, 3, width)
		y := nn.Linear(b.Scope("first"), x, vocab, nil)
		labels, scale := b.Input("labels", device.Int32, 2, 3), b.Input("scale", device.Float32)
		b.AddLoss("loss", nn.OutputLoss(b.Scope("output"), y, labels, scale, nn.OutputLossConfig{Vocab: width}))
		wrt := b.Parameters()
		if !c.all {
			wrt = wrt[1:]
		}
		for i, g := range b.Backward(wrt...) {
			b.Output(wrt[i].Name(), g)
		}
		if got := newMachine(t, b).Program().ModelFLOPs(); got != c.want {
			t.Errorf("%v model FLOPs, want %v", got, c.want)
		}
	}
}
