package graph

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/instrument"
)

// exchange is an asynchronous copy, as a collective would be.
type exchange struct {
	Pure
	delay time.Duration
	fail  error
}

func (exchange) Kind() string                                    { return "exchange" }
func (exchange) Lane() Lane                                      { return "link" }
func (exchange) Cost(in []device.Spec) Cost                      { return Traffic(0, in, in) }
func (exchange) Outputs(in []device.Spec) ([]device.Spec, error) { return in, nil }
func (e exchange) Run(x *Exec, out, in []device.Tensor) error {
	time.Sleep(e.delay)
	x.Copy(out[0], in[0])
	return e.fail
}

// Gradient waits for what await.Gradient has sent off.
func (exchange) Gradient(b *Builder, _, _, grad []Value) []Value {
	return []Value{At(grad[0]).Apply(await{}, grad[0])}
}

// await is the Wait behind an exchange.
type await struct{ Pure }

func (await) Kind() string                                      { return "wait" }
func (await) Waits()                                            {}
func (await) Cost([]device.Spec) Cost                           { return Cost{} }
func (await) Outputs(in []device.Spec) ([]device.Spec, error)   { return in, nil }
func (await) View(in device.Tensor) device.Tensor               { return in }
func (await) Run(*Exec, []device.Tensor, []device.Tensor) error { return nil }

func (await) Gradient(b *Builder, _, _, grad []Value) []Value {
	return []Value{b.Apply(exchange{}, grad[0])}
}

func exchanging(t *testing.T, e exchange) (*Builder, Value) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 64)
	sent := Add(x, x)
	pending := b.Apply(e, sent)
	beside := Add(x, sent) // overlaps the exchange
	y := Add(b.Apply(await{}, pending), beside)
	b.Output("y", y)
	return b, sent
}

func TestInFlightBuffersLiveUntilWait(t *testing.T) {
	b, _ := exchanging(t, exchange{delay: 5 * time.Millisecond})
	m := newMachine(t, b)
	var wait *Step
	for _, s := range m.Program().Steps {
		if s.Kind == Wait {
			wait = s
		}
	}
	for _, s := range m.Program().Storages {
		if n := s.Edge.Node; (n.Name == "add:0" || n.Kind == "exchange") && s.End < wait.Index {
			t.Errorf("%s dies at step %d, before the wait at %d", n.Name, s.End, wait.Index)
		}
	}
	checkPlacement(t, m.Program())
	in := device.Elements[float32](m.Input("x"))
	for i := range in {
		in[i] = float32(i)
	}
	for range 3 {
		if err := m.Run(context.Background(), RunOptions{}); err != nil {
			t.Fatal(err)
		}
		for i, v := range device.Elements[float32](m.Output("y")) {
			if v != 5*float32(i) {
				t.Fatalf("y[%d] = %v, want %v", i, v, 5*i)
			}
		}
	}
}

func TestMeasuredPeakWithLanes(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	store := NewStore(instrument.Wrap(d), StoreOptions{})
	defer store.Close()
	for range 5 {
		b := New(store)
		x := b.Input("x", device.Float32, 64)
		sent := Add(x, x)
		pending := b.Apply(exchange{delay: time.Millisecond}, sent)
		// Larger than what it overlaps with: the in-flight buffers count.
		beside := b.ApplyAll(mix{}, x, x)[0]
		beside = Add(beside, b.Full(1, device.Float32, 64))
		b.Output("y", Add(b.Apply(await{}, pending), beside))
		m := newMachine(t, b)
		seen, err := Measure(context.Background(), m, RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if planned := m.Program().Memory(nil).Peak; seen.Peak != planned || seen.UnwrittenReads != 0 {
			t.Fatalf("measured peak %d, planned %d, %d unwritten reads", seen.Peak, planned, seen.UnwrittenReads)
		}
		if err := m.Run(context.Background(), RunOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := device.Elements[float32](m.Output("y"))[0]; got != 1 {
			t.Fatalf("y = %v with dead memory poisoned, want 1", got)
		}
	}
}

func TestLaneErrorsAndCancellation(t *testing.T) {
	broken := errors.New("link broken")
	b, _ := exchanging(t, exchange{fail: broken})
	m := newMachine(t, b)
	for range 2 {
		if err := m.Run(context.Background(), RunOptions{}); !errors.Is(err, broken) {
			t.Errorf("error %v, want the lane's", err)
		}
	}
	b, _ = exchanging(t, exchange{delay: 20 * time.Millisecond})
	m = newMachine(t, b)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := m.Run(ctx, RunOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline", err)
	}
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Errorf("the run after a cancelled one: %v", err)
	}
}

// TestSavedForRerunsOfALane: what only a rerun before a wait reads is carried over to
// backward like everything else.
func TestSavedForRerunsOfALane(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 8)
	w := b.Parameter("w", device.Float32, Constant(1), 8)
	kept := b.ApplyAll(mix{}, x, x)[0]
	pending := b.Apply(exchange{}, Add(kept, kept))
	b.AddLoss("loss", b.Apply(probe{}, b.ApplyAll(mix{}, b.Apply(await{}, pending), w)[0]))
	b.Output("dw", b.Backward(w)[0])
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	plan := SaveAll(g)
	for _, n := range g.Nodes {
		if n.Kind == "add" || n.Kind == "exchange" || n.Kind == "wait" {
			plan.Entries[n.ID].Choice = Rerun
		}
	}
	p, err := Compile(g, CompileOptions{Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Reruns()) != 2 {
		t.Fatalf("reruns %v, want add and exchange", p.Reruns())
	}
	if saved := p.Saved(); len(saved) != 1 || saved[0].Edge.Node.Name != "mix:0" {
		t.Errorf("saved %d storages, want that of mix:0", len(saved))
	}
}

// probe is a loss whose gradient needs nothing, so that backward begins with reruns. It
// is only compiled.
type probe struct{ Pure }

func (probe) Kind() string                                      { return "probe" }
func (probe) Cost([]device.Spec) Cost                           { return Cost{} }
func (probe) Run(*Exec, []device.Tensor, []device.Tensor) error { return nil }
func (probe) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(in[0].DType)}, nil
}

func (probe) Gradient(b *Builder, in, _, _ []Value) []Value {
	return []Value{b.Parameter("cotangent", in[0].Spec().DType, Zeros, in[0].Shape()...)}
}

// double is an asynchronous mutator, as a reduction of gradients would be.
type double struct {
	Pure
	states int
}

func (double) Kind() string                                 { return "double" }
func (double) Lane() Lane                                   { return "link" }
func (double) Cost(in []device.Spec) Cost                   { return Traffic(0, in, in) }
func (double) Outputs([]device.Spec) ([]device.Spec, error) { return TokenOutput(), nil }
func (d double) Mutates() []int                             { return []int{0, 1}[:d.states] }
func (double) Run(x *Exec, _, in []device.Tensor) error {
	time.Sleep(time.Millisecond)
	for _, t := range in {
		x.Binary(device.Add, t, t, t)
	}
	return nil
}

// An asynchronous mutator begins once everything before it has touched what it changes, in
// whatever order that was built. What nothing reads later is computed in place.
func TestAsynchronousMutator(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 8)
	early, late := b.Scratch("early", device.Float32, 8), b.Scratch("late", device.Float32, 8)
	first := Add(x, x)
	second := Add(first, x)
	rest := Add(second, x)
	b.Assign(late, second)
	b.Assign(early, first)
	b.Output("rest", rest)
	b.Output("token", b.Apply(await{}, b.Apply(double{states: 2}, early, late)))
	m := newMachine(t, b)
	var kinds []string
	for _, s := range m.Program().Steps {
		kinds = append(kinds, s.Node.Name)
	}
	if got := strings.Join(kinds, " "); got != "add:0 add:1 assign:0 double:0 add:2 wait:0" {
		t.Errorf("steps %s: want the mutator right behind what it changes, and a copy of what is read later alone", got)
	}
	in := device.Elements[float32](m.Input("x"))
	for i := range in {
		in[i] = float32(i)
	}
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"early", "late"} {
		if got, want := device.Elements[float32](m.Program().Graph.Store.Variable(name).Tensor())[3], float32(3*2*(2+i)); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := device.Elements[float32](m.Output("rest"))[3]; got != 12 {
		t.Errorf("rest is %v, want 12", got)
	}
}

// What is being changed on a lane may not be touched before it has been waited for.
func TestAsynchronousMutatorIsWaitedFor(t *testing.T) {
	b := New(newStore(t, 1))
	s := b.Scratch("s", device.Float32, 8)
	b.Apply(double{states: 1}, s)
	b.Output("s", Add(s, s))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Compile(g, CompileOptions{}); err == nil || !strings.Contains(err.Error(), `add:0 touches "s", which double:0 is overwriting on its lane`) {
		t.Errorf("error %v, want that s is being overwritten", err)
	}
}
