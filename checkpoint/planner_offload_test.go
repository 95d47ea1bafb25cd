package checkpoint_test

import (
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/modelgraph"
	"pgregory.net/rapid"
)

// onDisk lets a planner move everything to a disk.
func onDisk(bandwidth float64) checkpoint.Options {
	return checkpoint.Options{Offload: []string{"*"}, Pace: checkpoint.Disk{Costs: checkpoint.DefaultCosts(), Bandwidth: bandwidth}}
}

// A disk that is slow is left alone, and the plan is the one without it. One that is fast
// takes what would be computed again. What lies between is never worse than the plan without,
// peaks where it says, within the budget, and is made alike a second time.
func TestPlannerOffloadsWhereItPays(t *testing.T) {
	g, without := modelPlanner(t, modelgraph.Debug()[0], checkpoint.Budget(), checkpoint.DefaultCosts())
	smallest, err := without.Smallest()
	if err != nil {
		t.Fatal(err)
	}
	none, err := graph.Rehearse(g, graph.SaveAll(g), nil)
	if err != nil {
		t.Fatal(err)
	}
	budget := smallest.PeakBytes + (none-smallest.PeakBytes)/4
	kept, err := without.Plan(budget)
	if err != nil {
		t.Fatal(err)
	}
	plan := func(bandwidth float64) checkpoint.Planned {
		p, err := checkpoint.NewPlanner(g, onDisk(bandwidth), checkpoint.DefaultCosts())
		if err != nil {
			t.Fatal(err)
		}
		q, err := p.Plan(budget)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	before := kept.AddedNanoseconds
	for _, bandwidth := range []float64{1e6, 1e9, 1e15} {
		q := plan(bandwidth)
		program := wantPlaced(t, "offload", g, q, budget)
		moved := program.Bound().Offloaded
		t.Logf("%.0e bytes/s: %d bytes moved, %d ns added (%d without), bound %d", bandwidth, moved, q.AddedNanoseconds, kept.AddedNanoseconds, q.BoundNanoseconds)
		if wait := checkpoint.CopyWait(program, q.Plan.Pace, nil); q.AddedNanoseconds != q.RerunNanoseconds+wait {
			t.Errorf("%d ns added, reruns take %d and waits %d", q.AddedNanoseconds, q.RerunNanoseconds, wait)
		}
		if q.BoundNanoseconds > q.AddedNanoseconds || q.AddedNanoseconds > before {
			t.Errorf("%d ns added, bound %d, %d on a slower disk", q.AddedNanoseconds, q.BoundNanoseconds, before)
		}
		switch {
		case bandwidth == 1e6:
			if moved > 0 || q.Plan.Hash() != kept.Plan.Hash() {
				t.Errorf("%d bytes are moved to a disk of 1 MB/s", moved)
			}
		case moved == 0 || q.AddedNanoseconds >= kept.AddedNanoseconds:
			t.Errorf("%.0e bytes/s: %d bytes moved, %d ns added, %d without", bandwidth, moved, q.AddedNanoseconds, kept.AddedNanoseconds)
		}
		before = q.AddedNanoseconds
	}
	// One that is fast but whose copies take all of the memory's time is left alone too.
	busy := onDisk(1e15)
	busy.Pace = checkpoint.Disk{Costs: checkpoint.DefaultCosts(), Bandwidth: 1e15, Memory: 1e6}
	p, err := checkpoint.NewPlanner(g, busy, checkpoint.DefaultCosts())
	if err != nil {
		t.Fatal(err)
	}
	if q, err := p.Plan(budget); err != nil || q.Plan.Hash() != kept.Plan.Hash() {
		t.Errorf("with copies that take all of the memory's time: %d ns added, %v", q.AddedNanoseconds, err)
	}
	if plan(1e9).Plan.Hash() != plan(1e9).Plan.Hash() {
		t.Error("another plan the second time")
	}
}

// With a disk there are plans below the smallest one without, and none of those that move
// everything away is smaller yet.
func TestOffloadMakesSmallerPlans(t *testing.T) {
	g, without := modelPlanner(t, modelgraph.Debug()[0], checkpoint.Budget(), checkpoint.DefaultCosts())
	least, err := without.Smallest()
	if err != nil {
		t.Fatal(err)
	}
	for _, bandwidth := range []float64{1e9, 1e12} {
		p, err := checkpoint.NewPlanner(g, onDisk(bandwidth), checkpoint.DefaultCosts())
		if err != nil {
			t.Fatal(err)
		}
		smaller, err := p.Smallest()
		if err != nil {
			t.Fatal(err)
		}
		q, err := p.Plan(smaller.PeakBytes)
		if err != nil {
			t.Fatal(err)
		}
		if smaller.PeakBytes >= least.PeakBytes || q.PeakBytes > smaller.PeakBytes {
			t.Errorf("peaks %d and %d, %d without", smaller.PeakBytes, q.PeakBytes, least.PeakBytes)
		}
		moved, err := checkpoint.Resolve(g, onDisk(bandwidth))
		if err != nil {
			t.Fatal(err)
		}
		if peak, err := graph.Rehearse(g, moved, nil); err != nil || peak < smaller.PeakBytes {
			t.Errorf("a peak of %d bytes with everything moved, %d is the smallest, %v", peak, smaller.PeakBytes, err)
		}
		inMemory, err := p.InMemory().Smallest()
		if err != nil {
			t.Fatal(err)
		}
		if inMemory.Plan.Hash() != least.Plan.Hash() {
			t.Errorf("in memory alone the smallest plan takes %d bytes, %d without a disk", inMemory.PeakBytes, least.PeakBytes)
		}
	}
}

// No choice of keeping, rerunning and moving takes less than the smallest plan, and a budget of
// that is not refused.
func TestSmallestAgainstAllPlans(t *testing.T) {
	store := newStore(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		g, p, _ := smallPlanner(t, store)
		smallest, err := p.Smallest()
		if err != nil {
			t.Fatal(err)
		}
		for _, plan := range allPlans(g, smallest.Plan) {
			peak, err := graph.Rehearse(g, plan, nil)
			if err != nil {
				t.Fatal(err)
			}
			if peak < smallest.PeakBytes {
				t.Fatalf("the smallest plan takes %d bytes, another one %d", smallest.PeakBytes, peak)
			}
		}
		if q, err := p.Plan(smallest.PeakBytes); err != nil || q.PeakBytes > smallest.PeakBytes {
			t.Fatalf("a plan within %d bytes takes %d, or %v", smallest.PeakBytes, q.PeakBytes, err)
		}
	})
}

// No choice of keeping, rerunning and moving within the budget undercuts the bound: all of
// them are tried.
func TestBoundOfOffloadingAgainstAllPlans(t *testing.T) {
	store := newStore(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		g, p, costs := smallPlanner(t, store)
		smallest, err := p.Smallest()
		if err != nil {
			t.Fatal(err)
		}
		budget := smallest.PeakBytes + int64(rapid.IntRange(0, 8).Draw(t, "more"))*1024
		q, err := p.Plan(budget)
		if err != nil {
			t.Fatal(err)
		}
		if q.PeakBytes > budget || q.BoundNanoseconds > q.AddedNanoseconds {
			t.Fatalf("peak %d within %d, %d ns added, bound %d", q.PeakBytes, budget, q.AddedNanoseconds, q.BoundNanoseconds)
		}
		for _, plan := range allPlans(g, q.Plan) {
			program, err := graph.Schedule(g, plan)
			if err != nil {
				t.Fatal(err)
			}
			peak, err := graph.Rehearse(g, plan, nil)
			if err != nil {
				t.Fatal(err)
			}
			added := checkpoint.CopyWait(program, plan.Pace, nil)
			for _, n := range program.Reruns() {
				added += costs.Nanoseconds(n)
			}
			if peak <= budget && added < q.BoundNanoseconds {
				t.Fatalf("a plan within %d adds %d ns, the bound is %d", budget, added, q.BoundNanoseconds)
			}
		}
	})
}

// smallPlanner draws a graph of a few ops and a disk on which all of it may wait.
func smallPlanner(t *rapid.T, store *graph.Store) (*graph.Graph, *checkpoint.Planner, checkpoint.Costs) {
	b := graph.New(store)
	x := b.Input("x", device.Float32, 256)
	y, earlier := x, x
	checkpoint.Region(b, checkpoint.Budget(), func() {
		for i := range rapid.IntRange(2, 6).Draw(t, "ops") {
			f := fake{kind: "op", flops: float64(rapid.IntRange(0, 4).Draw(t, "cost")) * 1e5, final: rapid.IntRange(0, 4).Draw(t, "final") == 0}
			if rapid.Bool().Draw(t, "resize") {
				f.out = device.NewSpec(device.Float32, 256*rapid.IntRange(1, 8).Draw(t, "size"))
			}
			in := []graph.Value{y}
			if rapid.IntRange(0, 2).Draw(t, "branch") == 0 {
				in = append(in, earlier)
				earlier = y
			}
			y = b.Scope("layers", i).Apply(f, in...)
		}
	})
	b.AddLoss("loss", b.Apply(fake{kind: "sum", out: device.NewSpec(device.Float32), final: true}, y))
	b.Output("dx", b.Backward(x)[0])
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	costs := checkpoint.Roofline{FLOPs: 1e9, Bandwidth: 1e15, LinkBandwidth: 1e15, Launch: 1}
	o := checkpoint.Options{Offload: []string{"*"}, Pace: checkpoint.Disk{Costs: costs, Bandwidth: rapid.SampledFrom([]float64{1e7, 1e8, 1e12}).Draw(t, "bandwidth"),
		Memory: rapid.SampledFrom([]float64{0, 1e8, 1e9}).Draw(t, "memory")}}
	p, err := checkpoint.NewPlanner(g, o, costs)
	if err != nil {
		t.Fatal(err)
	}
	return g, p, costs
}

// allPlans are a plan with every choice for each node that a planner decided about.
func allPlans(g *graph.Graph, of *graph.Plan) []*graph.Plan {
	plans := []*graph.Plan{of}
	for _, n := range g.Nodes {
		if of.Entries[n.ID].By != graph.Budget {
			continue
		}
		var more []*graph.Plan
		for _, p := range plans {
			for _, c := range []graph.Choice{graph.Save, graph.Rerun, graph.Offload} {
				q := &graph.Plan{Pace: p.Pace, Entries: append([]graph.Entry(nil), p.Entries...)}
				q.Entries[n.ID].Choice = c
				more = append(more, q)
			}
		}
		plans = more
	}
	return plans
}
