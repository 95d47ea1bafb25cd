package graph

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
)

func newStore(t testing.TB, workers int) *Store {
	t.Helper()
	d, err := cpu.New(cpu.Options{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	s := NewStore(d, StoreOptions{Seed: 1})
	t.Cleanup(func() {
		s.Close()
		d.Close()
	})
	return s
}

func newMachine(t testing.TB, b *Builder) *Machine {
	t.Helper()
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(g, CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMachine(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestRunAndGradient(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float64, 2, 3)
	w := b.Parameter("w", device.Float64, Constant(2), 2, 3)
	y := Add(Add(x, w), w)
	b.AddLoss("loss", Sum(Reshape(y, 6)))
	grads := b.Backward(w, x)
	b.Output("dw", grads[0])
	b.Output("dx", grads[1])
	m := newMachine(t, b)
	if err := Feed(m, "x", []float64{1, 2, 3, 4, 5, 6}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Run(context.Background(), RunOptions{Step: 1}); err != nil {
			t.Fatal(err)
		}
		if got := m.Scalar("loss"); got != 21+24 {
			t.Errorf("loss %v, want 45", got)
		}
		for i, g := range device.Elements[float64](m.Output("dw")) {
			if dx := device.Elements[float64](m.Output("dx"))[i]; g != 2 || dx != 1 {
				t.Errorf("element %d: dw %v, dx %v, want 2 and 1", i, g, dx)
			}
		}
	}
}

func TestUpdateIsCommittedOnlyWithFiniteLoss(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32)
	s := b.State("count", device.Float32, Constant(1))
	next := Add(s, x)
	b.Update(s, next)
	b.AddLoss("loss", Add(s, x))
	m := newMachine(t, b)
	run := func(v float32) error {
		if err := Feed(m, "x", []float32{v}); err != nil {
			t.Fatal(err)
		}
		return m.Run(context.Background(), RunOptions{Step: 1})
	}
	if err := run(2); err != nil || m.Scalar("loss") != 3 {
		t.Fatalf("loss %v, error %v: the loss reads the old value 1", m.Scalar("loss"), err)
	}
	if err := run(float32(math.NaN())); !errors.Is(err, ErrNonFinite) {
		t.Fatalf("error %v, want ErrNonFinite", err)
	}
	if err := run(0); err != nil || m.Scalar("loss") != 3 {
		t.Errorf("loss %v, error %v: want the state 3 of the first run", m.Scalar("loss"), err)
	}
}

func TestAssignToScratchIsInPlace(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 4)
	g := b.Scratch("grad", device.Float32, 4)
	b.Assign(g, Add(x, x))
	m := newMachine(t, b)
	if n := len(m.Program().Steps); n != 1 {
		t.Errorf("%d steps, want only the addition", n)
	}
	Feed(m, "x", []float32{1, 2, 3, 4})
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := device.Elements[float32](b.Store().Variable("grad").Tensor()); got[3] != 8 {
		t.Errorf("grad %v, want twice x", got)
	}
}

func TestWatchNamesTheFirstNodeWithNaN(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Scope("layers", 0).Input("x", device.Float32, 4)
	big := b.Scope("layers", 1).ApplyAll(mix{}, x, x)[0]
	b.Output("y", b.Scope("layers", 2).ApplyAll(mix{}, big, big)[0])
	m := newMachine(t, b)
	if err := m.Watch(); err != nil {
		t.Fatal(err)
	}
	Feed(m, "layers.0.x", []float32{1, 2, 3, 4})
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatalf("finite values: %v", err)
	}
	Feed(m, "layers.0.x", []float32{1, 2, 1e15, 4}) // squared 1e30, and that squared overflows
	err := m.Run(context.Background(), RunOptions{})
	if !errors.Is(err, ErrNonFinite) || !strings.Contains(err.Error(), "layers.2.mix:0: output 0 (float32[4]) holds 1 values") {
		t.Errorf("error %v: want it to name layers.2.mix:0", err)
	}
}
