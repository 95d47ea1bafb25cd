package checkpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

// fake is an op that is planned but never run. Its gradient reads the inputs.
type fake struct {
	kind    string
	effects graph.Effects
	out     device.Spec // zero: like the first input
	flops   float64
	final   bool // the gradient reads nothing but the gradient of the output
}

func (f fake) Kind() string                                            { return f.kind }
func (f fake) Workspace([]device.Spec, int) int64                      { return 0 }
func (f fake) Effects() graph.Effects                                  { return f.effects }
func (f fake) Cost([]device.Spec) graph.Cost                           { return graph.Cost{ExecutedFLOPs: f.flops} }
func (f fake) Run(*graph.Exec, []device.Tensor, []device.Tensor) error { return nil }

func (f fake) Outputs(in []device.Spec) ([]device.Spec, error) {
	if f.out.DType.Size() == 0 {
		return in[:1], nil
	}
	return []device.Spec{f.out}, nil
}

func (f fake) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	back := make([]graph.Value, len(in))
	for i, v := range in {
		if !v.Spec().DType.IsFloat() {
			continue
		}
		args := grad[:1]
		if !f.final {
			args = append(slices.Clone(args), in...)
		}
		back[i] = b.Apply(fake{kind: f.kind + "_gradient", out: v.Spec()}, args...)
	}
	return back
}

// fakeView shares its input's memory.
type fakeView struct{ fake }

func (fakeView) View(in device.Tensor) device.Tensor { return in }

// fakeStart and fakeWait are the halves of an asynchronous op.
type fakeStart struct{ fake }

func (fakeStart) Lane() graph.Lane { return "communication" }

type fakeWait struct{ fakeView }

func (fakeWait) Waits() {}

// op applies a fake op of a kind in b's scope. Kinds with a meaning in Lethe have
// the effects that their real ops have.
func op(b *graph.Builder, kind string, in ...graph.Value) graph.Value {
	f := fake{kind: kind, flops: 1}
	counts := device.NewSpec(device.Int32, 8)
	switch kind {
	case "view":
		f.final = true
		return b.Apply(fakeView{f}, in...)
	case "wait":
		f.final = true
		return b.Apply(fakeWait{fakeView{f}}, in...)
	case "all_to_all", "all_reduce", "all_gather", "reduce_scatter", "broadcast":
		f.effects = graph.Collective
		return b.Apply(fakeStart{f}, in...)
	case "topk":
		f.effects, f.out = graph.Discrete, counts
	case "count":
		f.out = counts
	case "to_host":
		f.effects, f.out = graph.HostSync, counts
		f.out.Place = device.OnHost
	case "dropout":
		f.effects = graph.Random
	case "metric":
		f.effects = graph.SideEffect
	}
	return b.Apply(f, in...)
}

// chain applies one op after the other.
func chain(b *graph.Builder, x graph.Value, kinds ...string) graph.Value {
	for _, k := range kinds {
		x = op(b, k, x)
	}
	return x
}

// finish adds the loss and the gradient of x, and returns the graph.
func finish(t testing.TB, b *graph.Builder, x, y graph.Value) *graph.Graph {
	t.Helper()
	b.AddLoss("loss", b.Apply(fake{kind: "sum", out: device.NewSpec(device.Float32), final: true}, y))
	b.Output("dx", b.Backward(x)[0])
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// build makes a graph of a model from x, float32[256], to a value of any shape.
func build(t testing.TB, model func(b *graph.Builder, x graph.Value) graph.Value) *graph.Graph {
	t.Helper()
	b := graph.New(newStore(t, 1))
	x := b.Input("x", device.Float32, 256)
	return finish(t, b, x, model(b, x))
}

func newStore(t testing.TB, workers int) *graph.Store {
	t.Helper()
	d, err := cpu.New(cpu.Options{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	s := graph.NewStore(d, graph.StoreOptions{Seed: 1})
	t.Cleanup(func() {
		s.Close()
		d.Close()
	})
	return s
}

func resolve(t testing.TB, g *graph.Graph, o checkpoint.Options) *graph.Plan {
	t.Helper()
	plan, err := checkpoint.Resolve(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// reruns lists the nodes that the plan would rerun, needed or not, without ":0".
func reruns(g *graph.Graph, p *graph.Plan) string {
	var out []string
	for _, n := range g.Nodes {
		if p.Entries[n.ID].Choice == graph.Rerun {
			out = append(out, strings.TrimSuffix(n.Name, ":0"))
		}
	}
	return strings.Join(out, " ")
}

// entry of the node with a name.
func entry(t testing.TB, g *graph.Graph, p *graph.Plan, name string) graph.Entry {
	t.Helper()
	for _, n := range g.Nodes {
		if n.Name == name {
			return p.Entries[n.ID]
		}
	}
	t.Fatalf("no node %q", name)
	return graph.Entry{}
}

// always is the policy that has one answer.
func always(d checkpoint.Decision) checkpoint.Policy {
	return func(checkpoint.Candidate) checkpoint.Decision { return d }
}
