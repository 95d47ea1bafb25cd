package nn_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// BenchmarkOutputLoss reports GFLOP/s next to those of a plain matrix product of
// the same extents, which is what blocks of tokens cost.
func BenchmarkOutputLoss(b *testing.B) {
	const tokens, width = 1024, 256
	for _, vocab := range []int{2048, 32_000} {
		b.Run(fmt.Sprintf("vocab=%d", vocab), func(b *testing.B) {
			g := graph.New(newStore(b, 0))
			hidden := g.Parameter("hidden", device.Float32, graph.Normal{Std: 1}, tokens, width)
			labels, scale := g.Input("labels", device.Int32, tokens), g.Input("scale", device.Float32)
			g.AddLoss("loss", nn.OutputLoss(g, hidden, labels, scale, nn.OutputLossConfig{Vocab: vocab}))
			grads := g.Backward(g.Parameters()...)
			g.Output("dhidden", grads[0])
			g.Assign(g.Scratch("gradient", device.Float32, vocab, width), grads[1])
			benchmark(b, g, 6*tokens*width*float64(vocab))
		})
		b.Run(fmt.Sprintf("matmul/vocab=%d", vocab), func(b *testing.B) {
			g := graph.New(newStore(b, 0))
			hidden := g.Parameter("hidden", device.Float32, graph.Normal{Std: 1}, tokens, width)
			logits := nn.Linear(g, hidden, vocab, nil)
			g.Assign(g.Scratch("logits", device.Float32, tokens, vocab), logits)
			benchmark(b, g, 2*tokens*width*float64(vocab))
		})
	}
}

func benchmark(b *testing.B, g *graph.Builder, flops float64) {
	m := newMachine(b, g)
	run(b, m, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Run(context.Background(), graph.RunOptions{Step: 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
