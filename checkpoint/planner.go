package checkpoint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/checkpoint/internal/remat"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Planner finds plans of one graph that keep the arena's peak within a budget and
// rerun as little as it can. What patterns, lists, rules and Must decisions say
// is kept; nodes without an answer, or with a Prefer, are free.
type Planner struct {
	graph    *graph.Graph
	costs    []int64 // of a rerun in nanoseconds, by node id
	resolved *graph.Plan
	free     []bool // by node id
	problem  *remat.Problem
	solver   *remat.Solver
	ops      []*graph.Node // by op of the problem
	unit     struct{ cost, size int64 }
	tried    map[uint64]Planned
}

// Planned is a plan and what it comes to.
type Planned struct {
	Plan *graph.Plan
	// PeakBytes is the exact peak of the arena, at the bounds of dynamic rows.
	PeakBytes int64
	// RerunNanoseconds is the sum of the costs of the reruns.
	RerunNanoseconds int64
	// BoundNanoseconds is undercut by no plan within the budget, under any
	// schedule that runs backward after the loss: between the passes all that is
	// saved lives.
	BoundNanoseconds int64
}

// InfeasibleError says that no plan was found within a budget.
type InfeasibleError struct {
	// BudgetBytes is the budget, SmallestBytes the least peak that was found.
	BudgetBytes, SmallestBytes int64
}

func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("checkpoint: no plan with a peak within %d bytes was found: the smallest peak is %d bytes; raise the budget, or make the batch or the sequences smaller",
		e.BudgetBytes, e.SmallestBytes)
}

// NewPlanner asks policies and rules as Resolve does, and takes the costs.
func NewPlanner(g *graph.Graph, o Options, costs Costs) (*Planner, error) {
	resolved, err := Resolve(g, o)
	if err != nil {
		return nil, err
	}
	p := &Planner{graph: g, costs: make([]int64, len(g.Nodes)), resolved: resolved, free: make([]bool, len(g.Nodes)), tried: map[uint64]Planned{}}
	f := newForward(g)
	for _, n := range f.nodes {
		p.costs[n.ID] = costs.Nanoseconds(n)
		p.free[n.ID] = f.leader[n.ID] == n && f.open(n, resolved.Entries[n.ID]) &&
			runsOnce(n).none() && f.readOutside(n, n.Region).none() && !overwritten(n)
	}
	p.build(f)
	p.solver, err = remat.NewSolver(p.problem)
	return p, err
}

// open reports whether an entry is nobody's firm decision. The default rules save what
// nobody has named; where the rerun list names it, what is best is open.
func (f *forward) open(n *graph.Node, e graph.Entry) bool {
	if !f.savedByDefault(n).none() {
		return e.By == graph.List && e.Choice == graph.Rerun
	}
	return e.By == graph.Nobody || e.By == graph.PolicyAnswer && (e.Decision == PreferSave || e.Decision == PreferRecompute)
}

// overwritten reports whether n reads a variable that a later node overwrites.
func overwritten(n *graph.Node) bool {
	for _, e := range n.In {
		base := e.Base().Node
		if base.Variable == nil {
			continue
		}
		for _, u := range base.Users() {
			for _, i := range u.Mutates() {
				if !u.Commit && u.In[i].Base().Node == base {
					return true
				}
			}
		}
	}
	return false
}

// build makes the problem of the live forward ops, in units that its solver's
// integers hold. Rounding down keeps its bounds valid.
func (p *Planner) build(f *forward) {
	var cost, size int64 = 1, 1
	for _, n := range f.nodes {
		cost += p.costs[n.ID]
		size += n.Bytes()
	}
	p.unit.cost, p.unit.size = 1, 1
	for float64(cost/p.unit.cost+1)*float64(size/p.unit.size+1) >= 1<<59 {
		if cost/p.unit.cost > size/p.unit.size {
			p.unit.cost *= 2
		} else {
			p.unit.size *= 2
		}
	}
	p.problem = &remat.Problem{}
	values := make([]int, len(p.graph.Nodes)) // of a node's first output
	for _, n := range f.nodes {
		if n.IsView() || !f.live[n.ID] {
			continue
		}
		op := remat.Op{Cost: p.costs[n.ID] / p.unit.cost, Fixed: remat.Once}
		if p.free[n.ID] {
			op.Fixed = remat.Free
		} else if p.resolved.Entries[n.ID].Choice == graph.Rerun {
			op.Fixed = remat.Again
		}
		for _, e := range n.In {
			if b := e.Base(); b.Node.IsOp() && !slices.Contains(op.In, values[b.Node.ID]+b.Out) {
				op.In = append(op.In, values[b.Node.ID]+b.Out)
			}
		}
		values[n.ID] = len(p.problem.Values)
		for i, s := range n.Out {
			op.Out = append(op.Out, len(p.problem.Values))
			v := remat.Value{Producer: len(p.ops)}
			if inArena(n, i) && p.resolved.Entries[n.ID].Choice != graph.Offload {
				v.Size = s.Bytes() / p.unit.size
			}
			p.problem.Values = append(p.problem.Values, v)
		}
		p.ops = append(p.ops, n)
		p.problem.Ops = append(p.problem.Ops, op)
	}
	for _, n := range p.graph.Nodes {
		if n.Phase == graph.Forward || !n.IsOp() || n.IsView() || !f.live[n.ID] {
			continue
		}
		for _, e := range n.In {
			if b := e.Base(); b.Node.IsOp() && b.Node.Phase == graph.Forward {
				p.problem.Values[values[b.Node.ID]+b.Out].Needed = true
			}
		}
	}
}

// inArena reports whether an output is sure to take arena while it is saved. One on
// the host does not, nor may one that is assigned to a variable, where the compiler
// lets it be computed in place: a bound must not count it.
func inArena(n *graph.Node, output int) bool {
	if n.Out[output].Place == device.OnHost {
		return false
	}
	for _, u := range n.Users() {
		for _, e := range u.In {
			if len(u.Mutates()) > 0 && e.Base() == (graph.Edge{Node: n, Out: output}) {
				return false
			}
		}
		if u.IsView() && !inArena(u, 0) {
			return false
		}
	}
	return true
}

// Plan finds a plan whose peak in the arena is at most a number of bytes, or
// returns an *InfeasibleError.
func (p *Planner) Plan(budget int64) (Planned, error) {
	best, found, err := p.search(budget)
	if err != nil {
		return Planned{}, err
	}
	if !found {
		return Planned{}, &InfeasibleError{budget, best.PeakBytes}
	}
	if b, ok := p.solver.Bound(budget / p.unit.size); ok {
		best.BoundNanoseconds = b.Cost * p.unit.cost
	}
	if best, err = p.improve(best, budget); err != nil {
		return Planned{}, err
	}
	return best, nil
}

// Smallest is the plan with the least peak that the search knows: what holds it
// is in its Program.
func (p *Planner) Smallest() (Planned, error) {
	smallest, _, err := p.search(-1)
	return smallest, err
}

// search judges the frontier's plans by their exact peak: the cheapest that fits, or
// the smallest if none does. The peak does not fall steadily along the frontier,
// for what many reruns make lives at once: each plan is looked at.
func (p *Planner) search(budget int64) (best Planned, found bool, err error) {
	for i, c := range p.solver.Frontier() {
		q, err := p.judge(c.Rerun)
		if err != nil {
			return Planned{}, false, err
		}
		fits := q.PeakBytes <= budget
		switch {
		case i == 0, fits && !found,
			fits && q.RerunNanoseconds < best.RerunNanoseconds,
			!found && q.PeakBytes < best.PeakBytes:
			best = q
		}
		found = found || fits
	}
	return best, found, nil
}

// improve stops reruns, the dearest first, as long as the peak stays within the
// budget.
func (p *Planner) improve(best Planned, budget int64) (Planned, error) {
	order := make([]int, len(p.ops))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.costs[p.ops[b].ID], p.costs[p.ops[a].ID]) })
	for _, i := range order {
		if !p.free[p.ops[i].ID] || best.Plan.Entries[p.ops[i].ID].Choice != graph.Rerun {
			continue
		}
		rerun := make([]bool, len(p.ops))
		for j, n := range p.ops {
			rerun[j] = j != i && best.Plan.Entries[n.ID].Choice == graph.Rerun
		}
		q, err := p.judge(rerun)
		if err != nil {
			return Planned{}, err
		}
		if q.PeakBytes <= budget && q.RerunNanoseconds < best.RerunNanoseconds {
			q.BoundNanoseconds = best.BoundNanoseconds
			best = q
		}
	}
	return best, nil
}

// judge makes a plan of a set of reruns, which it takes, and replays it.
func (p *Planner) judge(rerun []bool) (Planned, error) {
	p.problem.Evaluate(rerun) // drops what nobody needs
	q := Planned{Plan: &graph.Plan{Pace: p.resolved.Pace, Entries: slices.Clone(p.resolved.Entries)}}
	for i, n := range p.ops {
		if rerun[i] {
			q.RerunNanoseconds += p.costs[n.ID]
		}
		if !p.free[n.ID] {
			continue
		}
		e := &q.Plan.Entries[n.ID]
		e.Choice, e.By, e.Why = graph.Save, graph.Budget, "budget"
		if rerun[i] {
			e.Choice = graph.Rerun
		}
	}
	for _, n := range p.graph.Nodes { // what follows a value is decided with it
		if n.IsView() && n.Phase == graph.Forward {
			q.Plan.Entries[n.ID].Choice = q.Plan.Entries[n.In[0].Node.ID].Choice
		}
	}
	hash := q.Plan.Hash()
	if known, ok := p.tried[hash]; ok {
		return known, nil
	}
	peak, err := graph.Rehearse(p.graph, q.Plan)
	q.PeakBytes = peak
	p.tried[hash] = q
	return q, err
}
