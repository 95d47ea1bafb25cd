package checkpoint_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
	"pgregory.net/rapid"
)

var kinds = []string{"matmul", "attention", "rms_norm", "dropout", "topk", "count", "to_host", "metric",
	"view", "all_to_all", "add"}

// randomModel builds a random graph in random regions with random policies: each
// node may read any value made before, also out of a region that is over.
func randomModel(t *rapid.T, b *graph.Builder, x graph.Value) graph.Value {
	values, ints := []graph.Value{x}, []graph.Value(nil)
	var grow func(b *graph.Builder, depth int)
	grow = func(b *graph.Builder, depth int) {
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			if depth < 3 && rapid.IntRange(0, 3).Draw(t, "region") == 0 {
				b := b.Scope("r", i)
				checkpoint.Region(b, randomPolicy(t), func() { grow(b, depth+1) })
				continue
			}
			kind := rapid.SampledFrom(kinds).Draw(t, "kind")
			from := values
			if len(ints) > 0 && (kind == "count" || kind == "to_host") {
				from = ints
			}
			v := rapid.SampledFrom(from).Draw(t, "input")
			if rapid.IntRange(0, 4).Draw(t, "tag") == 0 {
				checkpoint.Name(v, fmt.Sprint("tag", rapid.IntRange(0, 1).Draw(t, "which")))
			}
			in := []graph.Value{v}
			if kind == "add" {
				in = append(in, rapid.SampledFrom(values).Draw(t, "second"))
				if len(ints) > 0 {
					in = append(in, rapid.SampledFrom(ints).Draw(t, "integers"))
				}
			}
			switch out := op(b, kind, in...); kind {
			case "topk", "count", "to_host":
				ints = append(ints, out)
			case "all_to_all":
				values = append(values, op(b, "wait", out))
			case "metric":
			default:
				values = append(values, out)
			}
		}
	}
	grow(b, 0)
	return op(b, "add", values...)
}

func randomPolicy(t *rapid.T) checkpoint.Policy {
	switch rapid.IntRange(0, 4).Draw(t, "policy") {
	case 0:
		return checkpoint.Full()
	case 1:
		return checkpoint.Selective()
	case 2:
		return checkpoint.Override(checkpoint.Full(), map[string]checkpoint.Decision{
			"all_to_all": checkpoint.MustRecompute, "tag0": checkpoint.MustSave})
	case 3:
		return checkpoint.First(checkpoint.Override(always(checkpoint.Auto), map[string]checkpoint.Decision{
			"matmul": checkpoint.MustRecompute, "view": checkpoint.MustSave}))
	}
	salt := rapid.IntRange(0, 1000).Draw(t, "salt")
	return func(c checkpoint.Candidate) checkpoint.Decision {
		return checkpoint.Decision((salt + 7*c.ID + c.ID*c.ID) % 5)
	}
}

func randomOptions(t *rapid.T) checkpoint.Options {
	draw := func(label string, from ...string) []string {
		if rapid.IntRange(0, 2).Draw(t, label) > 0 {
			return nil
		}
		return []string{rapid.SampledFrom(from).Draw(t, label+" entry")}
	}
	return checkpoint.Options{
		ForceRecompute: draw("force", "r", "r.1", "matmul", "*.add", "r.*.*"),
		Save:           draw("save", "matmul", "tag0", "rms_norm", "add"),
		Rerun:          draw("rerun", "to_host", "tag1", "all_to_all", "attention", "add"),
	}
}

// Whatever the graph, the policies and the options are, there is an error of
// this package, or a plan that keeps the absolute rules, that compiles, and whose
// report is what the compiler makes of it.
func TestRandomPlans(t *testing.T) {
	store := newStore(t, 1)
	plans := 0
	rapid.Check(t, func(t *rapid.T) {
		b := graph.New(store)
		x := b.Input("x", device.Float32, 256)
		y := randomModel(t, b, x)
		b.AddLoss("loss", b.Apply(fake{kind: "sum", out: device.NewSpec(device.Float32), final: true}, y))
		b.Output("dx", b.Backward(x)[0])
		g, err := b.Graph()
		if err != nil {
			t.Fatal(err)
		}
		o := randomOptions(t)
		plan, err := checkpoint.Resolve(g, o)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "checkpoint: ") {
				t.Fatalf("error %v", err)
			}
			return
		}
		plans++
		if again, err := checkpoint.Resolve(g, o); err != nil || again.Hash() != plan.Hash() {
			t.Fatalf("the second plan differs: %v", err)
		}
		checkRules(t, g, plan)
		checkReport(t, g, plan)
	})
	if plans == 0 {
		t.Error("no plan was made")
	}
}

func checkRules(t *rapid.T, g *graph.Graph, plan *graph.Plan) {
	reaches := map[*graph.Node]bool{}
	for _, r := range g.Roots {
		reaches[r] = true
	}
	for _, n := range slices.Backward(g.Nodes) {
		for _, e := range n.In {
			reaches[e.Node] = reaches[e.Node] || reaches[n]
		}
	}
	for _, n := range g.Nodes {
		e := plan.Entries[n.ID]
		if !n.IsOp() || n.Phase != graph.Forward {
			if e != (graph.Entry{}) {
				t.Errorf("%s is %v %s and has an entry: %v", n.Name, n.Phase, n.Kind, e)
			}
			continue
		}
		if e.Why == "" {
			t.Errorf("%s: nobody decided", n.Name)
		}
		if e.Choice == graph.Rerun && (n.Effects.Has(graph.Discrete) || n.Effects.Has(graph.SideEffect)) {
			t.Errorf("%s is rerun: %s", n.Name, e.Why)
		}
		if n.IsView() && e.Choice != plan.Entries[n.In[0].Node.ID].Choice {
			t.Errorf("view %s: %v, but its base: %v", n.Name, e.Choice, plan.Entries[n.In[0].Node.ID].Choice)
		}
		if outermost := outermost(n.Region); e.Choice == graph.Rerun && !n.IsView() && outermost != nil {
			for _, u := range readers(n) {
				if reaches[u] && !outermost.Contains(u.Region) {
					t.Errorf("%s is rerun, and read outside by %s", n.Name, u.Name)
				}
			}
		}
	}
}

// readers are the forward nodes that read n's memory.
func readers(n *graph.Node) []*graph.Node {
	var out []*graph.Node
	for _, u := range n.Users() {
		if u.Phase != graph.Forward {
			continue
		}
		out = append(out, u)
		if u.IsView() {
			out = append(out, readers(u)...)
		}
	}
	return out
}

func outermost(r *graph.Region) *graph.Region {
	for r != nil && r.Parent != nil {
		r = r.Parent
	}
	return r
}

func checkReport(t *rapid.T, g *graph.Graph, plan *graph.Plan) {
	p, err := graph.Compile(g, graph.CompileOptions{Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	var reruns, saved []string
	for _, n := range p.Reruns() {
		reruns = append(reruns, n.Name)
	}
	for _, st := range p.Saved() {
		saved = append(saved, st.Edge.Node.Name)
	}
	r := checkpoint.Explain(g, plan)
	same := func(what string, compiled, reported []string) {
		slices.Sort(compiled)
		slices.Sort(reported)
		if !slices.Equal(compiled, reported) {
			t.Errorf("%s: the program has %v, the report %v", what, compiled, reported)
		}
	}
	same("reruns", reruns, r.With(checkpoint.Rerun))
	same("saved", saved, r.With(checkpoint.Kept))
	if b := p.Bound().Saved; b != r.SavedBytes() {
		t.Errorf("the program saves %d bytes, the report says %d", b, r.SavedBytes())
	}
}

// Loss and gradients of a real model are the same bits under random plans.
func TestAnyPlanGivesTheSameBits(t *testing.T) {
	var want [][]float32
	step := func(policy checkpoint.Policy) (results [][]float32, plan *graph.Plan) {
		store := newStore(t, 2)
		b := graph.New(store)
		x := b.Input("x", device.Float32, 24, 32)
		y := x
		for i := range 2 {
			b := b.Scope("layers", i)
			checkpoint.Region(b, policy, func() {
				h := nn.RMSNorm(b.Scope("ffn_norm"), y, 1e-5)
				h = nn.FeedForward{Hidden: 48}.Build(b.Scope("feed_forward"), h)
				y = nn.Add(y, nn.Dropout(b.Scope("dropout"), h, 0.3))
			})
		}
		b.AddLoss("loss", graph.Sum(nn.Mul(y, nn.RMSNorm(b.Scope("norm"), y, 1e-5))))
		wrt := append(b.Parameters(), x)
		for i, grad := range b.Backward(wrt...) {
			b.Output(wrt[i].Name(), grad)
		}
		g, err := b.Graph()
		if err != nil {
			t.Fatal(err)
		}
		plan = resolve(t, g, checkpoint.Options{})
		p, err := graph.Compile(g, graph.CompileOptions{Plan: plan})
		if err != nil {
			t.Fatal(err)
		}
		m, err := graph.NewMachine(p)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		values := make([]float32, 24*32)
		for i := range values {
			values[i] = float32(i*i%211)/100 - 1
		}
		if err := graph.Feed(m, "x", values); err != nil {
			t.Fatal(err)
		}
		if err := m.Run(context.Background(), graph.RunOptions{Step: 3}); err != nil {
			t.Fatal(err)
		}
		for _, o := range g.Outputs {
			results = append(results, slices.Clone(device.Elements[float32](m.Output(o.Name))))
		}
		return results, plan
	}
	want, _ = step(checkpoint.None())
	different := map[uint64]bool{}
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.Uint64().Draw(t, "plan")
		got, plan := step(func(c checkpoint.Candidate) checkpoint.Decision {
			if bits>>(c.ID%61)&1 == 1 {
				return checkpoint.MustRecompute
			}
			return checkpoint.MustSave
		})
		different[plan.Hash()] = true
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("result %d differs", i)
			}
		}
	})
	if len(different) < 10 {
		t.Errorf("only %d different plans were tried", len(different))
	}
}
