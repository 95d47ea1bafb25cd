package checkpoint

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/lethe-go/lethe/graph"
)

// CopyWait is the time by which copies hold up a run of a Program, by a pace and with the
// given live rows. Ops run one after another, and so do copies beside them, each as soon as
// the Program lets it set out: ops wait for copies, and share memory with them.
func CopyWait(p *graph.Program, pace graph.Pace, counts graph.Counts) int64 {
	if pace == nil || p.SpillBytes == 0 {
		return 0
	}
	var now, copies, waited int64
	arrival := map[*graph.Step]int64{}
	for _, s := range p.Steps {
		switch s.Kind {
		case graph.Run, graph.Recompute:
			now += pace.Nanoseconds(at(s.Node, counts))
		case graph.CopyOut, graph.CopyBack:
			bytes := copiedBytes(s, counts)
			copies = max(copies, now) + pace.CopyNanoseconds(bytes)
			arrival[s] = copies
			waited += pace.CopyLoad(bytes)
			now += pace.CopyLoad(bytes)
		case graph.Wait:
			if late := arrival[s.Awaits()] - now; late > 0 {
				waited += late
				now += late
			}
		}
	}
	return waited
}

// copiedBytes are those of the result that a copy moves.
func copiedBytes(s *graph.Step, counts graph.Counts) (bytes int64) {
	specs := s.InputSpecs(counts)
	if s.Kind == graph.CopyBack {
		specs = s.OutputSpecs(counts)
	}
	for _, spec := range specs {
		bytes += spec.Bytes()
	}
	return bytes
}

// mover is the third arm of a Planner: what may wait outside the arena.
type mover struct {
	may []bool // by node id
	// bytes that may be moved, and the time of the forward pass.
	bytes, forward int64
}

// newMover looks for values that the user lets be moved and does not insist on: named in
// Options.Offload, or answered PreferOffload. Until they are found to be worth it they are
// saved. Without a pace nobody knows what moving costs, and what is asked for is done.
func (p *Planner) newMover(f *forward) {
	if p.resolved.Pace == nil {
		return
	}
	entries := p.resolved.Entries
	for _, n := range f.nodes {
		l := f.leader[n.ID]
		e := entries[l.ID]
		if l == n && e.Choice == graph.Offload && (e.By == graph.List || e.By == graph.PolicyAnswer && e.Decision == PreferOffload) {
			if p.mover.may == nil {
				p.mover.may = make([]bool, len(p.graph.Nodes))
			}
			p.mover.may[n.ID] = true
			p.mover.bytes += n.Bytes()
		}
		if p.moves(l) {
			entries[n.ID].Choice = graph.Save
		}
	}
}

// InMemory is the planner without the third arm: what it plans offloads nothing. That takes no
// buffers between the arena and the disk, for which a budget may have better use.
func (p *Planner) InMemory() *Planner {
	q := *p
	q.inMemory = true
	return &q
}

// offloads reports whether plans may move anything.
func (p *Planner) offloads() bool { return p.mover.may != nil && !p.inMemory }

// moves reports whether n may be moved.
func (p *Planner) moves(n *graph.Node) bool { return p.mover.may != nil && p.mover.may[n.ID] }

// weigh looks for a plan within the budget that loses less time than the best of keeping and
// rerunning. It begins with plans that rerun less than that and are too large, and moves
// values away until they fit: those that wait longest first, or the largest first. Plans are
// judged by their exact peak and by a simulation of the copies.
func (p *Planner) weigh(best Planned, found bool, budget int64) (Planned, bool, error) {
	for _, rerun := range p.larger(budget) {
		start, err := p.judge(rerun, nil)
		if err != nil {
			return best, found, err
		}
		if found && start.AddedNanoseconds+p.leastWait(start.PeakBytes-budget) >= best.AddedNanoseconds {
			continue
		}
		saved, err := p.saved(start)
		if err != nil {
			return best, found, err
		}
		for _, order := range []func(a, b savedOp) int{
			func(a, b savedOp) int { return cmp.Compare(a.begin, b.begin) },
			func(a, b savedOp) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.begin, b.begin)) },
		} {
			slices.SortFunc(saved, order)
			q, err := p.moveUntil(rerun, saved, budget)
			if err != nil {
				return best, found, err
			}
			if q.PeakBytes <= budget && (!found || q.AddedNanoseconds < best.AddedNanoseconds) {
				best, found = q, true
			}
		}
	}
	return best, found, nil
}

// larger are sets of reruns whose plans take about the budget or more, up to no reruns.
func (p *Planner) larger(budget int64) [][]bool {
	var sets [][]bool
	if p.front == nil {
		for _, c := range p.solver.Frontier() {
			sets = append(sets, c.Rerun)
		}
		return sets
	}
	const most = 9
	first, last := max(p.front.Find(budget), 0), p.front.Len()-1
	for i := range most {
		rerun, _, _ := p.front.At(last - (last-first)*i/(most-1))
		if i > 0 && slices.Equal(rerun, sets[len(sets)-1]) {
			continue
		}
		sets = append(sets, rerun)
	}
	return sets
}

// leastWait is by how much copies hold up a step at the least in which so many bytes are
// moved: they are away as backward begins, and come back.
func (p *Planner) leastWait(moved int64) int64 {
	if moved <= 0 {
		return 0
	}
	load := p.resolved.Pace.CopyLoad(moved)
	return load + max(load, p.resolved.Pace.CopyNanoseconds(moved)-p.mover.forward)
}

// savedOp is an op whose results a plan saves and may move.
type savedOp struct {
	op, begin int
	bytes     int64
}

// saved lists what a plan saves and may move.
func (p *Planner) saved(of Planned) ([]savedOp, error) {
	program, err := graph.Schedule(p.graph, of.Plan)
	if err != nil {
		return nil, err
	}
	bytes := make([]int64, len(p.graph.Nodes))
	for _, st := range program.Saved() {
		bytes[st.Edge.Node.ID] += st.BytesAt(p.counts)
	}
	var list []savedOp
	for i, n := range p.ops {
		if p.moves(n) && bytes[n.ID] > 0 {
			list = append(list, savedOp{op: i, begin: p.schedule.First[i], bytes: bytes[n.ID]})
		}
	}
	return list, nil
}

// moveUntil moves the first of a list, as few as bring the peak within the budget, or all.
func (p *Planner) moveUntil(rerun []bool, list []savedOp, budget int64) (Planned, error) {
	var failed error
	try := func(n int) Planned {
		away := make([]bool, len(p.ops))
		for _, s := range list[:n] {
			away[s.op] = true
		}
		q, err := p.judge(slices.Clone(rerun), away)
		failed = cmp.Or(failed, err)
		return q
	}
	if q := try(len(list)); failed != nil || q.PeakBytes > budget {
		return q, failed
	}
	n := sort.Search(len(list), func(n int) bool { return try(n).PeakBytes <= budget })
	return try(n), failed
}

// movedBound is undercut by what no plan adds to a step: reruns, and what copies hold it up. A
// plan is as large as it would be if it kept what it moves, less those bytes at the most, so
// that its reruns take no less than the bound for so much more memory. Copies away run one
// after another and have ended as backward begins, the time of the forward pass and what
// holds it up after the start of the step. Numbers of bytes are looked at in stretches, each
// with the least wait and the least reruns. It is taken for granted that several copies
// together take as long as one of all their bytes, or longer.
func (p *Planner) movedBound(budget int64) int64 {
	growth := 1.5
	if p.front != nil { // whose bounds are quick
		growth = 1.05
	}
	bound := p.keptBound(budget)
	for least := int64(1); least <= p.mover.bytes; {
		most := max(least, int64(float64(least)*growth))
		if kept := p.keptBound(budget + most); kept < math.MaxInt64-p.leastWait(least) {
			bound = min(bound, kept+p.leastWait(least))
		}
		least = most + 1
	}
	return bound
}

// keptBound is the bound for plans that move nothing: that of the front where there is one.
func (p *Planner) keptBound(budget int64) int64 {
	if p.front == nil {
		return p.AnySchedule(budget)
	}
	if bound, ok := p.front.Bound(budget); ok {
		return bound
	}
	return math.MaxInt64
}
