package remat

import "slices"

// Best is what a branch and bound has found.
type Best struct {
	Plan
	// Bound is proved: no plan within the budget costs less. It equals the plan's
	// cost if the search was finished.
	Bound int64
	// Nodes is the number of subproblems that were looked at.
	Nodes int
}

// Exact finds the cheapest plan that saves at most budget, by branch and bound on
// single ops, the subproblem with the lowest bound first. It gives up after a
// number of subproblems. It reports false if no plan saves so little.
func (s *Solver) Exact(budget int64, nodes int) (Best, bool) {
	given := s.fixed
	defer func() { s.fixed = given }()
	root, ok := s.Bound(budget)
	if !ok {
		return Best{}, false
	}
	b := Best{Plan: s.problem.fill(root.Small, budget, s.fixed), Bound: root.Cost}
	open := []subproblem{{given, root}}
	for len(open) > 0 && b.Nodes < nodes {
		at := lowest(open)
		p := open[at]
		open = slices.Delete(open, at, at+1)
		if p.Bounded.Cost >= b.Cost {
			continue
		}
		op := s.branch(p)
		if op < 0 {
			continue // Small is the best of the subproblem
		}
		for _, f := range []Fixed{Once, Again} {
			b.Nodes++
			s.fixed = slices.Clone(p.fixed)
			s.fixed[op] = f
			child, ok := s.Bound(budget)
			if !ok {
				continue
			}
			if plan := s.problem.fill(child.Small, budget, s.fixed); plan.Cost < b.Cost {
				b.Plan = plan
			}
			if child.Cost < b.Cost {
				open = append(open, subproblem{s.fixed, child})
			}
		}
	}
	b.Bound = b.Cost
	for _, p := range open {
		b.Bound = min(b.Bound, p.Bounded.Cost)
	}
	return b, true
}

// subproblem is a set of plans that keep what is fixed.
type subproblem struct {
	fixed []Fixed
	Bounded
}

func lowest(open []subproblem) int {
	at := 0
	for i := range open {
		if open[i].Bounded.Cost < open[at].Bounded.Cost {
			at = i
		}
	}
	return at
}

// branch chooses the heaviest free op about which the plans around the budget
// differ, or -1.
func (s *Solver) branch(p subproblem) int {
	op, most := -1, int64(-1)
	for i := range s.problem.Ops {
		if p.fixed[i] != Free || p.Small.Rerun[i] == p.Cheap.Rerun[i] {
			continue
		}
		weight := s.problem.Ops[i].Cost
		for _, v := range s.problem.Ops[i].Out {
			weight += s.problem.Values[v].Size
		}
		if weight > most {
			op, most = i, weight
		}
	}
	return op
}

// fill spends what is left of a budget: it stops reruns, one op after the other,
// the one that spares the most first, as long as the plan fits.
func (p *Problem) fill(plan Plan, budget int64, fixed []Fixed) Plan {
	for {
		best := plan
		for i, again := range plan.Rerun {
			if !again || fixed[i] == Again {
				continue
			}
			rerun := slices.Clone(plan.Rerun)
			rerun[i] = false
			if q := p.Evaluate(rerun); q.Saved <= budget && q.Cost < best.Cost {
				best = q
			}
		}
		if best.Cost == plan.Cost {
			return plan
		}
		plan = best
	}
}
