package graph

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/instrument"
	"github.com/lethe-go/lethe/device/spill"
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
	return machineUnder(t, g, nil)
}

// tester is a test, or one check of a property.
type tester interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// machineUnder runs g under a plan; nil saves everything.
func machineUnder(t tester, g *Graph, plan *Plan) *Machine {
	t.Helper()
	p, err := Compile(g, CompileOptions{Plan: plan})
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

// watchedStore records what kernels touch on d, and offloads to host memory. It is closed
// before d must be.
func watchedStore(t tester, d device.Device) *Store {
	watched := instrument.Wrap(d)
	place := spill.NewHost(watched)
	store := NewStore(watched, StoreOptions{Seed: 7})
	store.OffloadTo(place)
	t.Cleanup(func() {
		store.Close()
		place.Close()
	})
	return store
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
	if !errors.Is(err, ErrNonFinite) || !strings.Contains(err.Error(), "layers.2.mix:0: output 0 (float32[4]) holds 1 values of 4") ||
		!strings.Contains(err.Error(), "machine_test.go:") {
		t.Errorf("error %v: want it to name layers.2.mix:0 and where it was built", err)
	}
	var found *NonFiniteError
	if !errors.As(err, &found) || len(found.Inputs) != 2 || found.Values.Total != 4 || found.Values.NonFinite != 1 {
		t.Fatalf("%+v", found)
	}
	in := found.Inputs[0]
	if in.Name != "layers.1.mix:0" || in.NonFinite != 0 || in.Min != 2 || // x·x + x
		in.Max != float64(float32(1e15)*float32(1e15)) {
		t.Errorf("input %+v", in)
	}
}

// What an error says of many inputs are those that matter.
func TestNonFiniteErrorNamesSuspects(t *testing.T) {
	e := &NonFiniteError{Node: &Node{Name: "norm", Kind: "sum_squares"}}
	for i := range 20 {
		r := Range{Name: string(rune('a' + i)), Spec: device.Spec{DType: device.Float32, Shape: []int{3}}, Max: float64(i % 10), Total: 3}
		if i == 2 {
			r.NonFinite = 1
		}
		e.Inputs = append(e.Inputs, r)
	}
	if text := e.Error(); !strings.HasSuffix(text, "c float32[3] in [0, 2] with 1 of 3 not finite, h float32[3] in [0, 7], i float32[3] in [0, 8], j float32[3] in [0, 9], s float32[3] in [0, 8], t float32[3] in [0, 9] and 14 more") {
		t.Error(text)
	}
}
