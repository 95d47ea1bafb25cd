package graph

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/spill"
)

// layers is a graph of n regions with one op each. Backward reads all results but the last.
func layers(t *testing.T, store *Store, n int) *Graph {
	t.Helper()
	b := New(store)
	x := b.Input("x", device.Float32, 16)
	w := b.Parameter("w", device.Float32, Constant(1), 16)
	y := x
	for i := range n {
		b := b.Scope("layers", i)
		b.Region(nil, func() { y = b.ApplyAll(mix{}, y, w)[0] })
	}
	b.AddLoss("loss", Sum(y))
	b.Output("dw", b.Backward(w)[0])
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// offloading is a plan that offloads all of these.
func offloading(g *Graph, pace Pace) *Plan {
	p := SaveAll(g)
	p.Pace = pace
	for _, n := range g.Nodes {
		if n.Kind == "mix" && n.Phase == Forward {
			p.Entries[n.ID].Choice = Offload
		}
	}
	return p
}

// schedule writes the steps that are not in every plan, and who they are for.
func schedule(p *Program) string {
	var out []string
	for _, s := range p.Steps {
		name := strings.TrimPrefix(s.Node.Scope, "layers.")
		switch {
		case s.Kind == Wait:
			out = append(out, fmt.Sprintf("%v(%s %s)", s.Kind, s.Awaits().Kind, name))
		case s.Kind != Run:
			out = append(out, fmt.Sprintf("%v(%s)", s.Kind, name))
		case s.Node.Phase == Backward && s.Node.Kind == "mix":
			out = append(out, "backward("+name+")")
		default:
			out = append(out, s.Node.Kind)
		}
	}
	return strings.Join(out, " ")
}

// Copies are waited for where they have ended, set out just in time, and never more of
// them than one layer's are on their way.
func TestOffloadSchedule(t *testing.T) {
	g := layers(t, newStore(t, 1), 4)
	const (
		forward = "mix mix offload(0) "
		end     = "backward(1) backward(0) add add add"
	)
	for _, c := range []struct {
		name string
		pace Pace
		want string
	}{
		{"instant", nil, forward + "wait(offload 0) mix offload(1) wait(offload 1) mix offload(2) wait(offload 2) sum " +
			"full expand reload(2) wait(reload 2) backward(3) reload(1) wait(reload 1) backward(2) reload(0) wait(reload 0) " + end},
		{"an op each", paceOf{10}, forward + "mix offload(1) wait(offload 0) mix offload(2) wait(offload 1) sum wait(offload 2) " +
			"full reload(2) expand reload(1) wait(reload 2) backward(3) reload(0) wait(reload 1) backward(2) wait(reload 0) " + end},
		{"slow", paceOf{1000}, forward + "mix offload(1) wait(offload 0) mix offload(2) wait(offload 1) sum wait(offload 2) " +
			"reload(2) full expand reload(1) wait(reload 2) backward(3) reload(0) wait(reload 1) backward(2) wait(reload 0) " + end},
	} {
		p, err := Compile(g, CompileOptions{Plan: offloading(g, c.pace)})
		if err != nil {
			t.Fatal(err)
		}
		if got := schedule(p); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if m, all := p.Bound(), saveAll(t, g).Bound(); m.Saved+m.Offloaded != all.Saved || m.Offloaded != 3*64 || p.SpillBytes != 3*device.SpillAlignment {
			t.Errorf("%s: %d bytes saved and %d offloaded to %d, %d saved without a plan", c.name, m.Saved, m.Offloaded, p.SpillBytes, all.Saved)
		}
		if p.RecomputedFLOPs() != 0 || p.ExecutedFLOPs() != saveAll(t, g).ExecutedFLOPs() {
			t.Errorf("%s: %v FLOPs", c.name, p.ExecutedFLOPs())
		}
		if first := p.Steps[p.Boundary()-1]; !first.Backward() {
			t.Errorf("%s: backward begins with %v of %s", c.name, first.Kind, first.Node.Name)
		}
	}
}

func saveAll(t *testing.T, g *Graph) *Program {
	p, err := Compile(g, CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A rerun that reads an offloaded value moves its reload up.
func TestRerunBringsReloadForward(t *testing.T) {
	g := layers(t, newStore(t, 1), 4)
	plan := offloading(g, nil)
	for _, n := range g.Nodes {
		if n.Scope == "layers.2" && n.Phase == Forward {
			plan.Entries[n.ID].Choice = Rerun
		}
	}
	p, err := Compile(g, CompileOptions{Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	if want := "expand reload(1) wait(reload 1) rerun(2) backward(3) backward(2)"; !strings.Contains(schedule(p), want) {
		t.Errorf("%s\nlacks %s", schedule(p), want)
	}
}

// Values of the asynchronous lane, of dynamic rows and on the host.
func TestOffloadWithLanesAndRows(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	b := New(watchedStore(t, d))
	rows := b.Rows("tokens", 10)
	x := b.RowsInput("x", rows, device.Float32, 10, 3)
	y := b.ApplyAll(mix{}, x, x)[0]
	sent := b.Apply(exchange{}, y)
	z := b.ApplyAll(mix{}, b.Apply(await{}, sent), y)[0]
	b.AddLoss("loss", Sum(Reshape(b.ApplyAll(mix{}, z, z)[0], 10, 3, 1)))
	b.Output("dx", b.Backward(x)[0])
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	plan := offloading(g, paceOf{15})
	for _, n := range g.Nodes {
		if n.Kind == "exchange" && n.Phase == Forward {
			plan.Entries[n.ID].Choice = Offload
		}
	}
	m := machineUnder(t, g, plan)
	for i := range device.Elements[float32](m.Input("x")) {
		device.Elements[float32](m.Input("x"))[i] = 2
	}
	for _, n := range []int{10, 4, 0, 7} {
		if err := m.SetRows(rows, n); err != nil {
			t.Fatal(err)
		}
		before := m.Counters()
		seen, err := Measure(context.Background(), m, RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if planned := m.Program().Memory(m.Counts()).Peak; seen.Peak != planned || seen.UnwrittenReads != 0 {
			t.Errorf("%d rows: measured peak %d, planned %d, %d unwritten reads", n, seen.Peak, planned, seen.UnwrittenReads)
		}
		moved := m.Counters().Minus(before)
		if want := m.Program().Memory(m.Counts()).Offloaded; moved.CopiedOut != want || moved.CopiedBack != want || want != int64(2*12*n) {
			t.Errorf("%d rows: %d bytes out, %d back, want %d", n, moved.CopiedOut, moved.CopiedBack, want)
		}
	}
}

func TestWarmOffloadAllocatesNothing(t *testing.T) {
	store := newStore(t, 2)
	store.OffloadTo(spill.NewHost(store.dev))
	t.Cleanup(func() { store.spill.Close() })
	g := layers(t, store, 4)
	m := machineUnder(t, g, offloading(g, paceOf{10}))
	ctx := context.Background()
	if n := testing.AllocsPerRun(20, func() {
		if err := m.Run(ctx, RunOptions{Step: 1}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a warm run", n)
	}
}

// broken is a Spill that fails at an offset, at once or when something else is asked for.
type broken struct {
	device.Spill
	offset int64
	late   bool
	failed bool
}

func (b *broken) Offload(q device.Queue, offset int64, t device.Tensor) error {
	if b.failed = b.failed || offset == b.offset; b.failed && !b.late {
		return &device.SpillError{Offset: b.offset, Err: errors.New("disk on fire")}
	}
	return b.Spill.Offload(q, offset, t)
}

func (b *broken) Reload(q device.Queue, t device.Tensor, offset int64) error {
	if b.failed {
		return &device.SpillError{Offset: b.offset, Err: errors.New("disk on fire")}
	}
	return b.Spill.Reload(q, t, offset)
}

// Whenever a Spill tells of a failure, the value that it is about is named, and a run that
// has failed leaves nothing behind.
func TestSpillFailures(t *testing.T) {
	for _, late := range []bool{false, true} {
		store := newStore(t, 1)
		place := &broken{Spill: spill.NewHost(store.dev), offset: device.SpillAlignment, late: late}
		t.Cleanup(func() { place.Close() })
		store.OffloadTo(place)
		g := layers(t, store, 4)
		m := machineUnder(t, g, offloading(g, paceOf{10}))
		for range 3 {
			err := m.Run(context.Background(), RunOptions{Step: 1})
			if err == nil || !strings.Contains(err.Error(), "graph: layers.1.mix:0: ") || !strings.Contains(err.Error(), "disk on fire (offload_test.go:") {
				t.Errorf("late %v: error %v", late, err)
			}
		}
		place.offset, place.failed = -1, false
		if err := m.Run(context.Background(), RunOptions{Step: 1}); err != nil {
			t.Error(err)
		}
	}
}

func TestOffloadNeedsASpill(t *testing.T) {
	g := layers(t, newStore(t, 1), 3)
	p, err := Compile(g, CompileOptions{Plan: offloading(g, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = NewMachine(p); err == nil || !strings.Contains(err.Error(), "Store.OffloadTo") {
		t.Errorf("error %v", err)
	}
}
