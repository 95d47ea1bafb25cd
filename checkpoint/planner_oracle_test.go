package checkpoint_test

import (
	"slices"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// assignedModel is a graph in which a policy decides, and whose largest value may be computed
// in place in the variable that it is assigned to: it takes no arena then. With another use
// of the variable in backward, that is so only where the value is not kept for so long.
func assignedModel(t *testing.T, policy checkpoint.Policy, twice bool) *graph.Graph {
	b := graph.New(newStore(t, 1))
	x := b.Input("x", device.Float32, 256)
	scratch := b.Scratch("copy", device.Float32, 1<<14)
	var y, large graph.Value
	checkpoint.Region(b, policy, func() {
		y = chain(b, x, "a", "b", "c")
		large = b.Apply(fake{kind: "large", out: device.NewSpec(device.Float32, 1<<14), flops: 1 << 20}, y)
		y = chain(b, y, "d", "e")
	})
	if twice {
		b.Assign(scratch, large)
	}
	b.AddLoss("loss", b.Apply(fake{kind: "sum", out: device.NewSpec(device.Float32), final: true}, y))
	b.Output("dx", b.Backward(x)[0])
	if twice {
		b.Accumulate(scratch, large)
	} else {
		b.Assign(scratch, large)
	}
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// With a value that is computed in place no plan undercuts the bounds, and the planner finds
// the best of all plans at every budget: each is resolved from a policy of its own and replayed.
func TestPlannerWithValuesInPlace(t *testing.T) {
	for _, twice := range []bool{false, true} {
		best := bestOfAll(t, twice)
		if len(best) < 3 {
			t.Errorf("used twice %v: plans have %d peaks", twice, len(best))
		}
		planner, err := checkpoint.NewPlanner(assignedModel(t, checkpoint.Budget(), twice), checkpoint.Options{}, checkpoint.DefaultCosts())
		if err != nil {
			t.Fatal(err)
		}
		for budget, least := range best {
			for peak, cost := range best {
				if peak <= budget {
					least = min(least, cost)
				}
			}
			q, err := planner.Plan(budget)
			if err != nil {
				t.Fatal(err)
			}
			if any := planner.AnySchedule(budget); q.RerunNanoseconds != least || q.BoundNanoseconds > least || any > least {
				t.Errorf("used twice %v, budget %d: reruns of %d ns, bounds %d and %d, the best plan %d", twice, budget, q.RerunNanoseconds, q.BoundNanoseconds, any, least)
			}
		}
	}
}

// bestOfAll gives the least cost of all plans with a peak, by peak.
func bestOfAll(t *testing.T, twice bool) map[int64]int64 {
	kinds := []string{"a", "b", "c", "large", "d", "e"}
	reruns := 0
	g := assignedModel(t, func(c checkpoint.Candidate) checkpoint.Decision {
		for i, kind := range kinds {
			if c.Kind == kind && reruns>>i&1 == 1 {
				return checkpoint.MustRecompute
			}
		}
		return checkpoint.MustSave
	}, twice)
	best := map[int64]int64{}
	for reruns = range 1 << len(kinds) {
		p, err := graph.Schedule(g, resolve(t, g, checkpoint.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		peak, cost := slices.Max(p.LiveBytes(nil)), int64(0)
		for _, n := range p.Reruns() {
			cost += checkpoint.DefaultCosts().Nanoseconds(n)
		}
		if known, ok := best[peak]; !ok || cost < known {
			best[peak] = cost
		}
	}
	return best
}
