package main

import (
	"context"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

// The model learns, and the policy changes what is kept and not a bit of the losses.
func TestTrains(t *testing.T) {
	small := model{dim: 64, layers: 2}
	plain, all, err := fit(context.Background(), small, 40)
	if err != nil {
		t.Fatal(err)
	}
	small.checkpointed = true
	checkpointed, kept, err := fit(context.Background(), small, 40)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(plain, checkpointed) {
		t.Errorf("losses under the policy are %v, without it %v", checkpointed, plain)
	}
	if kept >= all*6/10 {
		t.Errorf("the policy keeps %d of %d bytes", kept, all)
	}
	if first, last := plain[0], plain[len(plain)-1]; last > 3 || first < 5 {
		t.Errorf("loss went from %.3f to %.3f, want from about 6 to below 3", first, last)
	}
}

// The gradient of the operation is that of x² where x is positive and 0 elsewhere.
func TestSquaredReLU(t *testing.T) {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	store := graph.NewStore(dev, graph.StoreOptions{})
	defer store.Close()
	b := graph.New(store)
	x := b.Parameter("x", device.Float64, graph.Zeros, 4)
	y := b.Apply(squaredReLU{}, x)
	b.Output("y", y)
	b.AddLoss("sum", graph.Sum(y))
	b.Output("dx", b.Backward(x)[0])
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	p, err := graph.Compile(g, graph.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := graph.NewMachine(p)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	copy(device.Elements[float64](store.Variable("x").Tensor()), []float64{-3, 0, 0.5, 2})
	if err := m.Run(context.Background(), graph.RunOptions{Step: 1}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]float64{"y": {0, 0, 0.25, 4}, "dx": {0, 0, 1, 4}} {
		if got := device.Elements[float64](m.Output(name)); !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
