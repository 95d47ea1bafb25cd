package checkpoint_test

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/modelgraph"
)

// modelPlanner is a planner of a model under a policy for each of its layers.
func modelPlanner(t *testing.T, m modelgraph.Model, layer checkpoint.Policy, costs checkpoint.Costs) (*graph.Graph, *checkpoint.Planner) {
	t.Helper()
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	g, err := m.Graph(d, layer)
	if err != nil {
		t.Fatal(err)
	}
	p, err := checkpoint.NewPlanner(g, checkpoint.Options{}, costs)
	if err != nil {
		t.Fatal(err)
	}
	return g, p
}

// What is planned for a debug model at ten budgets is proved to be the best: nothing undercuts
// it. The compiled Program peaks where the plan says, and placement loses next to nothing.
func TestDebugModelsAreProvedOptimal(t *testing.T) {
	for _, m := range modelgraph.Debug() {
		g, p := modelPlanner(t, m, checkpoint.Budget(), checkpoint.DefaultCosts())
		smallest, err := p.Smallest()
		if err != nil {
			t.Fatal(err)
		}
		none, err := graph.Rehearse(g, graph.SaveAll(g), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(10) {
			budget := smallest.PeakBytes + (none-smallest.PeakBytes)*i/9
			q, err := p.Plan(budget)
			if err != nil {
				t.Fatal(err)
			}
			if q.RerunNanoseconds != q.BoundNanoseconds {
				t.Errorf("%s, budget %d: reruns of %d ns, and the bound is %d ns", m.Name, budget, q.RerunNanoseconds, q.BoundNanoseconds)
			}
			wantPlaced(t, fmt.Sprintf("%s, budget %d", m.Name, budget), g, q, budget)
		}
	}
}

// wantPlaced compiles a plan: its peak is the one that was planned, within the budget, and the
// arena is at most 2 % or 1 MiB more.
func wantPlaced(t *testing.T, name string, g *graph.Graph, q checkpoint.Planned, budget int64) *graph.Program {
	t.Helper()
	c, err := graph.Compile(g, graph.CompileOptions{Plan: q.Plan})
	if err != nil {
		t.Fatal(err)
	}
	m := c.Bound()
	if m.Peak != q.PeakBytes || m.Peak > budget {
		t.Errorf("%s: the peak is %d, planned %d", name, m.Peak, q.PeakBytes)
	}
	if m.Arena > max(m.Peak+m.Peak/50, m.Peak+1<<20) {
		t.Errorf("%s: the arena has %d bytes for a peak of %d", name, m.Arena, m.Peak)
	}
	return c
}

// At the same peak the planner never computes more again than full and selective activation
// checkpointing, and than PyTorch's knapsack.
func TestPlannerAgainstOtherRules(t *testing.T) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "model\trule\tpeak_bytes\trecomputed_flops\tplanner_peak_bytes\tplanner_flops\tratio\t")
	for _, m := range modelgraph.Debug() {
		g, planner := modelPlanner(t, m, checkpoint.Budget(), checkpoint.Operations())
		compare := func(rule string, peak int64, flops float64) {
			q, err := planner.Plan(peak)
			if err != nil {
				t.Fatalf("%s, %s: %v", m.Name, rule, err)
			}
			ours := wantPlaced(t, m.Name+" at the peak of "+rule, g, q, peak).RecomputedFLOPs()
			if ours > flops {
				t.Errorf("%s: the planner computes %g again, %s %g", m.Name, ours, rule, flops)
			}
			ratio := "–"
			if flops > 0 {
				ratio = fmt.Sprintf("%.3f", ours/flops)
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%.4g\t%d\t%.4g\t%s\t\n", m.Name, rule, peak, flops, q.PeakBytes, ours, ratio)
		}
		for _, x := range []struct {
			rule   string
			policy checkpoint.Policy
		}{{"full", checkpoint.Full()}, {"selective", checkpoint.Selective()}} {
			g, _ := modelPlanner(t, m, x.policy, checkpoint.Operations())
			plan, err := checkpoint.Resolve(g, checkpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := graph.Compile(g, graph.CompileOptions{Plan: plan})
			if err != nil {
				t.Fatal(err)
			}
			compare(x.rule, c.Bound().Peak, c.RecomputedFLOPs())
		}
		for i := range 10 {
			q, err := planner.Knapsack(float64(i) / 9)
			if err != nil {
				t.Fatal(err)
			}
			rule := fmt.Sprintf("knapsack %.2f", float64(i)/9)
			c := wantPlaced(t, m.Name+", "+rule, g, q, q.PeakBytes)
			compare(rule, q.PeakBytes, c.RecomputedFLOPs())
		}
	}
	w.Flush()
	t.Logf("\n%s", table.String())
}
