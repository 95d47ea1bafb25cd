package graph

import (
	"context"
	"testing"

	"github.com/lethe-go/lethe/device"
)

// chain is a graph of n tiny additions.
func chain(b *Builder, n int) {
	x := b.Input("x", device.Float32, 1)
	y := x
	for range n {
		y = Add(y, x)
	}
	b.Output("y", y)
}

func TestWarmRunAllocatesNothing(t *testing.T) {
	b := New(newStore(t, 2))
	x := b.Input("x", device.Float32, 4096)
	w := b.Parameter("w", device.Float32, Uniform{-1, 1}, 4096)
	h := b.ApplyAll(mix{}, Reshape(Reshape(x, 64, 64), 4096), w)
	b.AddLoss("l", Sum(Add(h[0], h[1])))
	b.Assign(b.Scratch("g", device.Float32, 4096), b.Backward(w)[0])
	m := newMachine(t, b)
	ctx := context.Background()
	if n := testing.AllocsPerRun(20, func() {
		if err := m.Run(ctx, RunOptions{Step: 1}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a warm run", n)
	}
}

// BenchmarkExecutorOverhead prints what the executor costs for each step of a
// program, beside the kernel itself: an addition of one element.
func BenchmarkExecutorOverhead(b *testing.B) {
	const steps = 1000
	g := New(newStore(b, 1))
	chain(g, steps)
	m := newMachine(b, g)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Run(ctx, RunOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/steps, "ns/step")
}
