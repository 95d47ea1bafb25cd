package nn_test

import (
	"context"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

func newStore(t testing.TB, workers int) *graph.Store {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: workers})
	check(t, err)
	s := graph.NewStore(dev, graph.StoreOptions{Seed: 5})
	t.Cleanup(func() {
		s.Close()
		dev.Close()
	})
	return s
}

func newMachine(t testing.TB, b *graph.Builder) *graph.Machine {
	t.Helper()
	g, err := b.Graph()
	check(t, err)
	p, err := graph.Compile(g, graph.CompileOptions{})
	check(t, err)
	m, err := graph.NewMachine(p)
	check(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func run(t testing.TB, m *graph.Machine, step int) {
	t.Helper()
	check(t, m.Run(context.Background(), graph.RunOptions{Step: step}))
}

// floats returns a copy of a float64 output.
func floats(m *graph.Machine, name string) []float64 {
	return append([]float64(nil), device.Elements[float64](m.Output(name))...)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
