package checkpoint

import (
	"cmp"
	"math"
	"slices"

	"github.com/lethe-go/lethe/checkpoint/internal/remat"
	"github.com/lethe-go/lethe/graph"
)

// Planner finds plans of one graph that keep the arena's peak within a budget and
// rerun as little as it can. What patterns, lists, rules and Must decisions say
// is kept; nodes without an answer, or with a Prefer, are free. With Options.Pace what
// Options.Offload names is free too, and is offloaded only where that costs less time than
// running it again.
type Planner struct {
	graph    *graph.Graph
	counts   graph.Counts // live rows at which bytes and costs are counted
	costs    []int64      // of a rerun in nanoseconds, by node id
	resolved *graph.Plan
	free     []bool        // by node id
	ops      []*graph.Node // by op of the schedule
	schedule *remat.Schedule
	front    *remat.Front  // nil if the graph does not divide into layers
	solver   *remat.Solver // of saved bytes, in units that its integers hold
	unit     struct{ cost, size int64 }
	mover    mover
	inMemory bool // nothing is moved
	tried    map[uint64]Planned
}

// Planned is a plan and what it comes to.
type Planned struct {
	Plan *graph.Plan
	// PeakBytes is the exact peak of the arena, at the bounds of dynamic rows or at
	// those that Options.Counts gives.
	PeakBytes int64
	// RerunNanoseconds is the sum of the costs of the reruns.
	RerunNanoseconds int64
	// AddedNanoseconds are those, and the time by which copies of what is offloaded hold up
	// the run (see [CopyWait]).
	AddedNanoseconds int64
	// BoundNanoseconds is what AddedNanoseconds of no plan within the budget undercut, as
	// long as nodes are rerun once, right before backward first needs them, and the rules
	// are kept (see [Planner.AnySchedule]).
	BoundNanoseconds int64

	peakSteps int // at which the peak lives
}

// NewPlanner asks policies and rules as Resolve does, and takes the costs.
func NewPlanner(g *graph.Graph, o Options, costs Costs) (*Planner, error) {
	resolved, err := Resolve(g, o)
	if err != nil {
		return nil, err
	}
	p := &Planner{graph: g, counts: o.Counts, costs: make([]int64, len(g.Nodes)), resolved: resolved, free: make([]bool, len(g.Nodes)), tried: map[uint64]Planned{}}
	f := newForward(g)
	p.newMover(f)
	for _, n := range f.nodes {
		p.costs[n.ID] = costs.Nanoseconds(at(n, o.Counts))
		p.free[n.ID] = f.leader[n.ID] == n && (f.open(n, resolved.Entries[n.ID]) || p.moves(n) && f.savedByDefault(n).none()) &&
			runsOnce(n).none() && f.readOutside(n, n.Region).none() && !overwritten(n)
	}
	if err := p.build(f); err != nil {
		return nil, err
	}
	p.front, _ = p.schedule.Front()
	return p, nil
}

// at is a node whose cost is that with the given live rows.
func at(n *graph.Node, counts graph.Counts) *graph.Node {
	if len(counts) == 0 || !n.IsOp() {
		return n
	}
	narrow := *n
	narrow.Cost = n.CostAt(counts)
	return &narrow
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

// Plan finds a plan whose peak in the arena is at most a number of bytes, or
// returns an *InfeasibleError.
func (p *Planner) Plan(budget int64) (Planned, error) {
	best, found, err := p.rerunOnly(budget)
	if err != nil {
		return Planned{}, err
	}
	if found && p.front == nil {
		if best, err = p.improve(best, budget); err != nil {
			return Planned{}, err
		}
	}
	if p.offloads() {
		if best, found, err = p.weigh(best, found, budget); err != nil {
			return Planned{}, err
		}
	}
	if !found {
		if best, err = p.Smallest(); err != nil {
			return Planned{}, err
		}
		if best.PeakBytes > budget {
			return Planned{}, p.infeasible(budget, best)
		}
	}
	best.BoundNanoseconds = p.Bound(budget)
	return best, nil
}

// Bound is a cost in nanoseconds that no plan within a peak undercuts, in the sense of
// [Planned]; math.MaxInt64 if it is known that there is no plan.
func (p *Planner) Bound(peak int64) int64 {
	if p.offloads() {
		return p.movedBound(peak)
	}
	bound := p.AnySchedule(peak)
	if p.front == nil {
		return bound
	}
	if of, ok := p.front.Bound(peak); ok {
		return max(bound, of)
	}
	return math.MaxInt64
}

// AnySchedule is a cost in nanoseconds that no plan within a peak undercuts, under any
// schedule that runs backward after the loss, with any number of reruns: between
// the passes all that is saved lives, and what is needed and not saved is rerun.
func (p *Planner) AnySchedule(peak int64) int64 {
	b, ok := p.solver.Bound(peak / p.unit.size)
	if !ok {
		return math.MaxInt64
	}
	return b.Cost * p.unit.cost
}

// rerunOnly finds a plan that moves nothing away: one within a budget, or else the smallest.
func (p *Planner) rerunOnly(budget int64) (best Planned, found bool, err error) {
	if p.front != nil {
		return p.layered(budget)
	}
	return p.search(budget)
}

// layered takes the best plan of the front. The replay of the front is exact but for
// what travels on other lanes, which lives longer: plans with a peak above
// what the front says are passed over.
func (p *Planner) layered(budget int64) (best Planned, found bool, err error) {
	for i := max(p.front.Find(budget), 0); i >= 0; i-- {
		rerun, _, _ := p.front.At(i)
		if best, err = p.judge(rerun, nil); err != nil || best.PeakBytes <= budget {
			return best, err == nil, err
		}
		// What is too much now is too much further on: skip what it comes to.
		for _, peak, _ := p.front.At(i); i > 0; i-- {
			if _, next, _ := p.front.At(i - 1); peak-next >= best.PeakBytes-budget {
				break
			}
		}
	}
	return best, false, nil
}

// search judges the frontier's plans by their exact peak: the cheapest that fits, or
// the smallest if none does. The peak does not fall steadily along the frontier,
// for what many reruns make lives at once: each plan is looked at.
func (p *Planner) search(budget int64) (best Planned, found bool, err error) {
	for i, c := range p.solver.Frontier() {
		q, err := p.judge(c.Rerun, nil)
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

// improve stops reruns, the dearest first, as long as the peak stays within the budget.
func (p *Planner) improve(best Planned, budget int64) (Planned, error) {
	var order []int
	for i, n := range p.ops {
		if p.free[n.ID] && best.Plan.Entries[n.ID].Choice == graph.Rerun {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.costs[p.ops[b].ID], p.costs[p.ops[a].ID]) })
	const atOnce = 64 // what is looked at first
	var err error
	for ops := range slices.Chunk(order, atOnce) {
		if best, err = p.stop(best, ops, budget); err != nil {
			return Planned{}, err
		}
	}
	return best, nil
}

// stop stops the reruns of ops together, or as many as can be in halves.
func (p *Planner) stop(best Planned, ops []int, budget int64) (Planned, error) {
	rerun := make([]bool, len(p.ops))
	for i, n := range p.ops {
		rerun[i] = best.Plan.Entries[n.ID].Choice == graph.Rerun
	}
	ops = slices.DeleteFunc(slices.Clone(ops), func(i int) bool { return !rerun[i] }) // of others stopped before
	if len(ops) == 0 {
		return best, nil
	}
	// The replay, which is quick, does not know what travels on other lanes: about as
	// much as in the plan before.
	travels := best.PeakBytes - p.schedule.Peak(rerun)
	for _, i := range ops {
		rerun[i] = false
	}
	p.schedule.Evaluate(rerun)
	if p.schedule.Peak(rerun)+travels <= budget {
		q, err := p.judge(rerun, nil)
		if err != nil {
			return Planned{}, err
		}
		if q.PeakBytes <= budget {
			q.BoundNanoseconds = best.BoundNanoseconds
			return q, nil
		}
	}
	if len(ops) == 1 {
		return best, nil
	}
	best, err := p.stop(best, ops[:len(ops)/2], budget)
	if err != nil {
		return Planned{}, err
	}
	return p.stop(best, ops[len(ops)/2:], budget)
}

// judge makes a plan of a set of reruns, which it takes, and of what is moved away of the
// rest, and replays it.
func (p *Planner) judge(rerun, away []bool) (Planned, error) {
	p.schedule.Evaluate(rerun) // drops what nobody needs
	q := Planned{Plan: &graph.Plan{Pace: p.resolved.Pace, Entries: slices.Clone(p.resolved.Entries)}}
	for i, n := range p.ops {
		if rerun[i] {
			q.RerunNanoseconds += p.costs[n.ID]
		}
		if !p.free[n.ID] && !p.moves(n) {
			continue
		}
		e := &q.Plan.Entries[n.ID]
		e.Choice, e.By, e.Why = graph.Save, graph.Budget, "budget"
		switch {
		case rerun[i]:
			e.Choice = graph.Rerun
		case away != nil && away[i]:
			e.Choice = graph.Offload
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
	program, err := graph.Schedule(p.graph, q.Plan)
	if err != nil {
		return q, err
	}
	live := program.LiveBytes(p.counts)
	q.PeakBytes = slices.Max(live)
	for _, bytes := range live {
		if bytes == q.PeakBytes {
			q.peakSteps++
		}
	}
	q.AddedNanoseconds = q.RerunNanoseconds + CopyWait(program, p.resolved.Pace, p.counts)
	p.tried[hash] = q
	return q, nil
}
