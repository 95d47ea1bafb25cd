package attention_test

import (
	"context"
	"math"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

func newStore(t testing.TB) *graph.Store {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: 2})
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

func run(t testing.TB, m *graph.Machine) {
	t.Helper()
	check(t, m.Run(context.Background(), graph.RunOptions{Step: 1}))
}

func floats(m *graph.Machine, name string) []float64 {
	return append([]float64(nil), device.Elements[float64](m.Output(name))...)
}

func values(s *graph.Store, name string) []float64 {
	return device.Elements[float64](s.Variable(name).Tensor())
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= 1e-12*(1+math.Abs(w))) {
			t.Errorf("%s, element %d: %g, want %g", what, i, got[i], w)
			return
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
