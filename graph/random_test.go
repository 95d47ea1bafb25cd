package graph

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"pgregory.net/rapid"
)

// mix has two outputs, the second of which may be left out, and scratch memory:
// a·b + a and a·b − b.
type mix struct{}

func (mix) Kind() string                            { return "mix" }
func (mix) Effects() Effects                        { return 0 }
func (mix) Cost(in []device.Spec) Cost              { return Traffic(3*float64(in[0].Len()), in, in) }
func (mix) Workspace(in []device.Spec, _ int) int64 { return in[0].Bytes() }
func (mix) Optional(i int) bool                     { return i == 1 }
func (mix) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{in[0], in[0]}, sameShape("mix", in)
}

func (mix) Run(x *Exec, out, in []device.Tensor) error {
	product := x.ScratchLike(0, in[0])
	x.Binary(device.Mul, product, in[0], in[1])
	x.Binary(device.Add, out[0], product, in[0])
	if !out[1].IsZero() {
		x.Binary(device.Sub, out[1], product, in[1])
	}
	return nil
}

func (mix) Gradient(b *Builder, in, _, grad []Value) []Value {
	both := []Value{}
	for _, g := range grad {
		if !g.IsNone() {
			both = append(both, g)
		}
	}
	g := both[0]
	if len(both) == 2 {
		g = Add(g, both[1])
	}
	// Not the true gradient: only that it reads what a gradient would matters here.
	back := b.ApplyAll(mix{}, in[0], g)
	return []Value{back[0], back[1]}
}

// randomGraph builds a chain of regions of random ops and returns its builder. Some
// run on a lane, and are waited for later or never.
func randomGraph(t *rapid.T, store *Store) *Builder {
	b := New(store)
	size := rapid.IntRange(1, 40).Draw(t, "size")
	values := []Value{b.Input("x", device.Float32, size), b.Parameter("w", device.Float32, Uniform{-0.1, 0.1}, size)}
	pick := func() Value { return rapid.SampledFrom(values[max(0, len(values)-4):]).Draw(t, "operand") }
	var pending []Value
	for i := range rapid.IntRange(1, 4).Draw(t, "regions") {
		b := b.Scope("layers", i)
		b.Region(nil, func() {
			for range rapid.IntRange(1, 5).Draw(t, "ops") {
				switch rapid.IntRange(0, 5).Draw(t, "op") {
				case 0:
					values = append(values, Add(pick(), pick()))
				case 1:
					values = append(values, Reshape(Reshape(pick(), 1, size), size))
				case 2:
					pending = append(pending, b.Apply(exchange{}, pick()))
				case 3:
					if len(pending) > 0 { // each is waited for once, as a collective's Pending is
						i := rapid.IntRange(0, len(pending)-1).Draw(t, "pending")
						values = append(values, At(pending[i]).Apply(await{}, pending[i]))
						pending = slices.Delete(pending, i, i+1)
					}
				default:
					out := b.ApplyAll(mix{}, pick(), pick())
					values = append(values, out[:rapid.IntRange(1, 2).Draw(t, "outputs")]...)
				}
			}
		})
	}
	b.AddLoss("loss", Sum(values[len(values)-1]))
	g := b.Backward(values[1], values[0])
	b.Assign(b.Scratch("gradient.w", device.Float32, size), g[0])
	b.Output("dx", g[1])
	return b
}

// randomPlan reruns and offloads random sets of nodes, with copies that take a random time.
func randomPlan(t *rapid.T, g *Graph) *Plan {
	p := SaveAll(g)
	p.Pace = paceOf{rapid.Int64Range(0, 50).Draw(t, "pace")}
	for _, n := range g.Nodes {
		if n.IsOp() && n.Phase == Forward {
			p.Entries[n.ID].Choice = rapid.SampledFrom([]Choice{Save, Rerun, Offload}).Draw(t, "choice")
		}
	}
	return p
}

// paceOf has copies that take as long as so many ops.
type paceOf struct{ ops int64 }

func (paceOf) Nanoseconds(*Node) int64       { return 10 }
func (p paceOf) CopyNanoseconds(int64) int64 { return p.ops }
func (p paceOf) CopyLoad(int64) int64        { return 0 }

// TestAnyPlanGivesTheSameBitsInThePlannedMemory is the heart of the executor:
// whatever the plan, results do not change, the measured peak is the planned one,
// and nothing reads memory that was given away.
func TestAnyPlanGivesTheSameBitsInThePlannedMemory(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rapid.Check(t, func(t *rapid.T) {
		g, err := randomGraph(t, watchedStore(t, d)).Graph()
		if err != nil {
			t.Fatal(err)
		}
		var want string
		for i := range 3 {
			plan := SaveAll(g)
			if i > 0 {
				plan = randomPlan(t, g)
			}
			if got := runPlan(t, g, plan); i == 0 {
				want = got
			} else if got != want {
				t.Fatalf("results differ under another plan:\n%s\n%s", got, want)
			}
		}
	})
}

// runPlan measures a run, repeats it with dead memory poisoned, and returns the
// results.
func runPlan(t *rapid.T, g *Graph, plan *Plan) string {
	m := machineUnder(t, g, plan)
	checkPlacement(t, m.Program())
	x := device.Elements[float32](m.Input("x"))
	for i := range x {
		x[i] = 0.1 * float32(i%7)
	}
	seen, err := Measure(context.Background(), m, RunOptions{Step: 1})
	if err != nil {
		t.Fatal(err)
	}
	memory := m.Program().Memory(nil)
	if seen.Peak != memory.Peak || seen.UnwrittenReads != 0 {
		t.Fatalf("measured peak %d bytes, planned %d; %d bytes read before they were written", seen.Peak, memory.Peak, seen.UnwrittenReads)
	}
	if seen.Persistent != memory.Persistent {
		t.Fatalf("measured %d persistent bytes, planned %d", seen.Persistent, memory.Persistent)
	}
	first := results(g.Store, m)
	if err := m.Run(context.Background(), RunOptions{Step: 1}); err != nil {
		t.Fatal(err)
	}
	if again := results(g.Store, m); again != first {
		t.Fatalf("results change when dead memory is poisoned:\n%s\n%s", again, first)
	}
	return first
}

func results(s *Store, m *Machine) string {
	grad := device.Elements[float32](s.Variable("gradient.w").Tensor())
	return fmt.Sprint(m.Scalar("loss"), device.Elements[float32](m.Output("dx")), grad)
}

// checkPlacement verifies that no two living storages overlap.
func checkPlacement(t interface{ Fatalf(string, ...any) }, p *Program) {
	for i, a := range p.Storages {
		if a.Offset%device.Alignment != 0 || a.Offset+a.bytes > p.ArenaBytes {
			t.Fatalf("storage of %v at %d with %d bytes in an arena of %d", a.Edge.Node, a.Offset, a.bytes, p.ArenaBytes)
		}
		for _, b := range p.Storages[:i] {
			if a.Begin <= b.End && b.Begin <= a.End && a.Offset < b.Offset+b.bytes && b.Offset < a.Offset+a.bytes {
				t.Fatalf("storages of %v and %v overlap", a.Edge.Node, b.Edge.Node)
			}
		}
	}
}

func TestSavedStorages(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 8)
	w := b.Parameter("w", device.Float32, Constant(1), 8)
	h := b.ApplyAll(mix{}, x, w)[0]
	y := b.ApplyAll(mix{}, h, w)[0]
	b.AddLoss("loss", Sum(y))
	b.Output("dw", b.Backward(w)[0])
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	saved := func(choices ...Choice) (names []string, reruns int) {
		plan := SaveAll(g)
		for i, c := range choices {
			plan.Entries[h.core.graphNode(h).ID+i].Choice = c
		}
		p, err := Compile(g, CompileOptions{Plan: plan})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.Saved() {
			names = append(names, s.Edge.Node.Name)
		}
		return names, len(p.Reruns())
	}
	// Backward reads h, and never y, whatever the plan says about y.
	if names, reruns := saved(Save, Save); !slices.Equal(names, []string{"mix:0"}) || reruns != 0 {
		t.Errorf("saved %v with %d reruns: want mix:0", names, reruns)
	}
	if names, reruns := saved(Rerun, Rerun); len(names) != 0 || reruns != 1 {
		t.Errorf("saved %v with %d reruns: want nothing, and one rerun", names, reruns)
	}
}

// graphNode is the finished node behind a Value.
func (c *core) graphNode(v Value) *Node {
	for _, n := range c.graph.Nodes {
		if n.Name == c.metas[v.node.ID()].name {
			return n
		}
	}
	return nil
}
