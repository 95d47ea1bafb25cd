package remat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomProblem has ops that read up to three earlier values, some with two
// outputs, some that must run once or again.
func randomProblem(r *rand.Rand, ops int) *Problem {
	p := &Problem{}
	for i := range ops {
		op := Op{Cost: int64(r.IntN(20)), Fixed: []Fixed{Free, Free, Free, Free, Free, Free, Once, Again}[r.IntN(8)]}
		for range r.IntN(4) {
			if v := len(p.Values); v > 0 {
				if in := r.IntN(v); !slices.Contains(op.In, in) {
					op.In = append(op.In, in)
				}
			}
		}
		for range 1 + r.IntN(5)/4 {
			op.Out = append(op.Out, len(p.Values))
			p.Values = append(p.Values, Value{Size: int64(r.IntN(30)), Producer: i, Needed: r.IntN(2) == 0})
		}
		p.Ops = append(p.Ops, op)
	}
	return p
}

// all evaluates every set of reruns that keeps what is fixed.
func all(p *Problem) []Plan {
	var plans []Plan
	for set := range 1 << len(p.Ops) {
		rerun := make([]bool, len(p.Ops))
		for i := range rerun {
			rerun[i] = set>>i&1 == 1
		}
		given := slices.Clone(rerun)
		plan := p.Evaluate(rerun)
		if !slices.Equal(given, plan.Rerun) { // the same as another set
			continue
		}
		if keeps(p, plan) {
			plans = append(plans, plan)
		}
	}
	return plans
}

// keeps reports whether a plan reruns no Once and saves no value of an Again.
func keeps(p *Problem, plan Plan) bool {
	read := make([]bool, len(p.Values))
	for v := range p.Values {
		read[v] = p.Values[v].Needed
	}
	for i, op := range p.Ops {
		if plan.Rerun[i] {
			for _, v := range op.In {
				read[v] = true
			}
		}
	}
	for i, op := range p.Ops {
		if plan.Rerun[i] && op.Fixed == Once {
			return false
		}
		for _, v := range op.Out {
			if op.Fixed == Again && !plan.Rerun[i] && read[v] {
				return false
			}
		}
	}
	return true
}

type corner struct{ saved, cost int64 }

// hull is the lower convex hull of plans, by the definition.
func hull(plans []Plan) []corner {
	var points []corner
	for _, p := range plans {
		points = append(points, corner{p.Saved, p.Cost})
	}
	slices.SortFunc(points, func(a, b corner) int {
		if a.saved != b.saved {
			return int(a.saved - b.saved)
		}
		return int(a.cost - b.cost)
	})
	var h []corner
	for _, p := range points {
		if len(h) > 0 && p.cost >= h[len(h)-1].cost {
			continue
		}
		for len(h) >= 2 {
			a, b := h[len(h)-2], h[len(h)-1]
			if (b.cost-a.cost)*(p.saved-a.saved) < (p.cost-a.cost)*(b.saved-a.saved) {
				break
			}
			h = h[:len(h)-1]
		}
		h = append(h, p)
	}
	return h
}

// The frontier, the bound at every budget and the plans of branch and bound are
// right, by comparison with all plans of small random problems.
func TestAgainstAllPlans(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	budgets, infeasible, tight := 0, 0, 0
	for range 600 {
		p := randomProblem(r, 3+r.IntN(9))
		s, err := NewSolver(p)
		if err != nil {
			t.Fatal(err)
		}
		plans := all(p)
		var corners []corner
		for _, c := range s.Frontier() {
			if !keeps(p, c) {
				t.Fatalf("a corner breaks what is fixed: %+v in %+v", c, p)
			}
			corners = append(corners, corner{c.Saved, c.Cost})
		}
		if want := hull(plans); !slices.Equal(corners, want) {
			t.Fatalf("frontier %v, want %v", corners, want)
		}
		tried := map[int64]bool{}
		for _, at := range plans {
			for _, budget := range []int64{at.Saved, at.Saved - 1} {
				if tried[budget] {
					continue
				}
				tried[budget] = true
				best := int64(math.MaxInt64)
				for _, q := range plans {
					if q.Saved <= budget {
						best = min(best, q.Cost)
					}
				}
				bound, ok := s.Bound(budget)
				exact, found := s.Exact(budget, math.MaxInt)
				if ok != found || ok != (best < math.MaxInt64) {
					t.Fatalf("budget %d: bound %v, branch and bound %v, the best plan costs %d", budget, ok, found, best)
				}
				if !ok {
					infeasible++
					continue
				}
				budgets++
				if bound.Cost == best {
					tight++
				}
				if bound.Cost > best || bound.Small.Saved > budget || !keeps(p, bound.Small) {
					t.Fatalf("budget %d: bound %+v, the best plan costs %d", budget, bound, best)
				}
				if exact.Cost != best || exact.Bound != best || exact.Saved > budget || !keeps(p, exact.Plan) {
					t.Fatalf("budget %d: branch and bound %+v, the best plan costs %d", budget, exact, best)
				}
			}
		}
	}
	t.Logf("%d budgets, %d infeasible, the bound is the optimum at %d", budgets, infeasible, tight)
	if budgets < 5000 || infeasible < 100 || tight < 500 {
		t.Error("the problems are too easy")
	}
}

// A search that is cut short says what it has proved.
func TestExactGivesUp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	open := 0
	for range 100 {
		p := randomProblem(r, 12)
		s, _ := NewSolver(p)
		for _, at := range s.Frontier() {
			full, _ := s.Exact(at.Saved+7, math.MaxInt)
			short, ok := s.Exact(at.Saved+7, 1)
			if !ok || short.Bound > full.Cost || short.Cost < full.Cost || short.Saved > at.Saved+7 {
				t.Fatalf("short search %+v, full search %+v", short, full)
			}
			if short.Bound < short.Cost {
				open++
			}
		}
	}
	if open == 0 {
		t.Error("no search was cut short")
	}
}

func TestTooLargeNumbers(t *testing.T) {
	p := &Problem{Ops: []Op{{Cost: 1 << 31, Out: []int{0}}}, Values: []Value{{Size: 1 << 31}}}
	if _, err := NewSolver(p); err == nil {
		t.Error("numbers whose products overflow were accepted")
	}
	p.Ops[0].Cost >>= 8
	if _, err := NewSolver(p); err != nil {
		t.Error(err)
	}
}
