package remat

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// randomSchedule is a random Problem with a backward pass of a step for each op, in
// reverse order, that reads some of the values nearby. With borders every fourth op
// runs once and alone is read by later ones.
func randomSchedule(r *rand.Rand, ops int, borders bool) *Schedule {
	s := &Schedule{Problem: &Problem{}, Workspace: make([]int64, ops)}
	begin := 0 // the first value that may be read
	// What lives in one pass alone, and grows in the other, like gradients.
	heavy, grow := []int64{0, 0, 2000}[r.IntN(3)], []int64{0, 20, 500}[r.IntN(3)]
	for i := range ops {
		op := Op{Cost: int64(r.IntN(20)), Fixed: []Fixed{Free, Free, Free, Free, Free, Free, Once, Again}[r.IntN(8)]}
		border := borders && i%4 == 3
		if border {
			op.Fixed = Once
		}
		for range r.IntN(4) {
			if v := len(s.Values); v > begin {
				if in := begin + r.IntN(v-begin); !slices.Contains(op.In, in) {
					op.In = append(op.In, in)
				}
			}
		}
		if border {
			begin = len(s.Values)
		}
		for range 1 + r.IntN(5)/4 {
			op.Out = append(op.Out, len(s.Values))
			s.Values = append(s.Values, Value{Size: int64(r.IntN(30)), Producer: i, Optional: r.IntN(4) == 0})
		}
		s.Workspace[i] = int64(r.IntN(15))
		s.First = append(s.First, i)
		s.Ops = append(s.Ops, op)
		s.Steps = append(s.Steps, Step{Before: heavy, Bytes: heavy + int64(r.IntN(20))})
	}
	for i := range slices.Backward(s.Ops) {
		step := Step{Later: true, Before: int64(ops-i)*grow + int64(r.IntN(15))}
		step.Bytes = step.Before + int64(r.IntN(15))
		for _, v := range slices.Concat(s.Ops[i].In, s.Ops[i].Out) {
			if r.IntN(2) == 0 && !slices.Contains(step.Reads, v) {
				step.Reads = append(step.Reads, v)
				s.Values[v].Needed = true
			}
		}
		s.Steps = append(s.Steps, step)
	}
	return s
}

// The front of small random schedules is that of all plans, each judged by the replay
// of the whole schedule, and its bound is never above them.
func TestFrontAgainstAllPlans(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	budgets, several := 0, 0
	for n := range 600 {
		s := randomSchedule(r, 3+r.IntN(8), n%2 == 1)
		f, ok := s.Front()
		if !ok {
			t.Fatalf("no front of %+v", s)
		}
		if len(f.layers) > 1 {
			several++
		}
		type point struct{ peak, cost int64 }
		var plans []point
		for _, p := range all(s.Problem) {
			plans = append(plans, point{s.Peak(p.Rerun), p.Cost})
		}
		for _, at := range plans {
			for _, budget := range []int64{at.peak, at.peak - 1} {
				best, found := int64(0), false
				for _, p := range plans {
					if p.peak <= budget && (!found || p.cost < best) {
						best, found = p.cost, true
					}
				}
				i := f.Find(budget)
				bound, ok := f.Bound(budget)
				if found != (i >= 0) || found != ok {
					t.Fatalf("problem %d, budget %d: plan %d, bound %v, the best costs %d %v", n, budget, i, ok, best, found)
				}
				if !found {
					continue
				}
				budgets++
				rerun, peak, cost := f.At(i)
				if p := s.Evaluate(slices.Clone(rerun)); peak != s.Peak(rerun) || cost != p.Cost || !keeps(s.Problem, p) {
					t.Fatalf("problem %d, budget %d: peak %d cost %d of %v, replayed peak %d, cost %d", n, budget, peak, cost, rerun, s.Peak(rerun), p.Cost)
				}
				if cost != best || bound != best {
					t.Fatalf("problem %d, budget %d: cost %d, bound %d, the best %d", n, budget, cost, bound, best)
				}
			}
		}
	}
	t.Logf("%d budgets, %d schedules of several layers", budgets, several)
	if budgets < 5000 || several < 100 {
		t.Error("the schedules are too easy")
	}
}
