package checkpoint

import (
	"cmp"
	"iter"
	"slices"

	"github.com/lethe-go/lethe/graph"
)

// Smallest is the plan with the least peak that the search knows: what holds it is in its
// Program. Where values may be moved and it is about few, all plans are looked at.
func (p *Planner) Smallest() (Planned, error) {
	smallest, _, err := p.rerunOnly(-1)
	if err != nil || !p.offloads() {
		return smallest, err
	}
	var open []int
	for i, n := range p.ops {
		if p.free[n.ID] || p.moves(n) {
			open = append(open, i)
		}
	}
	const few = 6
	if len(open) <= few {
		return p.smallestOfAll(smallest, open)
	}
	starts, err := p.starts()
	if err != nil {
		return smallest, err
	}
	trials := 400
	for _, start := range starts {
		q, err := p.descend(start, &trials)
		if err != nil {
			return q, err
		}
		if comparePeaks(q, smallest) < 0 {
			smallest = q
		}
	}
	return smallest, nil
}

// smallestOfAll looks at all decisions about ops.
func (p *Planner) smallestOfAll(smallest Planned, open []int) (Planned, error) {
	all := 1
	for range open {
		all *= 3
	}
	for code := range all {
		rerun, away := make([]bool, len(p.ops)), make([]bool, len(p.ops))
		allowed := true
		for _, op := range open {
			n := p.ops[op]
			rerun[op], away[op] = code%3 == 1, code%3 == 2
			allowed = allowed && (!rerun[op] || p.free[n.ID]) && (!away[op] || p.moves(n))
			code /= 3
		}
		if !allowed {
			continue
		}
		q, err := p.judge(rerun, away)
		if err != nil {
			return q, err
		}
		if comparePeaks(q, smallest) < 0 {
			smallest = q
		}
	}
	return smallest, nil
}

// starts are plans from which smaller ones may be found, the smallest first: everything that
// is not rerun is moved away, or nothing is.
func (p *Planner) starts() ([]Planned, error) {
	var starts []Planned
	for _, rerun := range p.larger(-1) {
		away := make([]bool, len(p.ops))
		for i, n := range p.ops {
			away[i] = p.moves(n) && !rerun[i]
		}
		for _, away := range [][]bool{away, nil} {
			q, err := p.judge(slices.Clone(rerun), away)
			if err != nil {
				return nil, err
			}
			starts = append(starts, q)
		}
	}
	slices.SortStableFunc(starts, comparePeaks)
	return starts, nil
}

// comparePeaks puts the plan with the lower peak first, or the one with the same at fewer steps.
func comparePeaks(a, b Planned) int {
	return cmp.Or(cmp.Compare(a.PeakBytes, b.PeakBytes), cmp.Compare(a.peakSteps, b.peakSteps))
}

// descend looks for a lower plan with another decision about one of the values that live at
// the peak, and goes on from there as long as it finds one and trials are left. What is moved
// away is in memory on its way, so that more moves may take more of it.
func (p *Planner) descend(from Planned, trials *int) (Planned, error) {
	for lower := true; lower; {
		program, err := graph.Schedule(p.graph, from.Plan)
		if err != nil {
			return from, err
		}
		lower = false
		for rerun, away := range p.otherwise(program, from) {
			if *trials <= 0 {
				return from, nil
			}
			*trials--
			q, err := p.judge(rerun, away)
			if err != nil {
				return from, err
			}
			if lower = comparePeaks(q, from) < 0; lower {
				from = q
				break
			}
		}
	}
	return from, nil
}

// otherwise are the decisions that differ from those of a plan about one value that lives at
// its peak, the largest first.
func (p *Planner) otherwise(program *graph.Program, of Planned) iter.Seq2[[]bool, []bool] {
	peak := program.PeakStep(p.counts)
	bytes := make([]int64, len(p.graph.Nodes))
	for _, st := range program.Storages {
		if st.Begin <= peak && peak <= st.End && !st.Workspace() {
			bytes[st.Edge.Node.ID] += st.BytesAt(p.counts)
		}
	}
	var there []int
	rerun, away := make([]bool, len(p.ops)), make([]bool, len(p.ops))
	for i, n := range p.ops {
		c := of.Plan.Entries[n.ID].Choice
		rerun[i], away[i] = c == graph.Rerun, c == graph.Offload && p.moves(n)
		if bytes[n.ID] > 0 && (p.free[n.ID] || p.moves(n)) {
			there = append(there, i)
		}
	}
	slices.SortStableFunc(there, func(a, b int) int { return cmp.Compare(bytes[p.ops[b].ID], bytes[p.ops[a].ID]) })
	return func(yield func(rerun, away []bool) bool) {
		for _, op := range there {
			n := p.ops[op]
			for _, c := range [...]graph.Choice{graph.Offload, graph.Rerun, graph.Save} {
				if c == of.Plan.Entries[n.ID].Choice || c == graph.Rerun && !p.free[n.ID] || c == graph.Offload && !p.moves(n) {
					continue
				}
				r, a := slices.Clone(rerun), slices.Clone(away)
				r[op], a[op] = c == graph.Rerun, c == graph.Offload
				if !yield(r, a) {
					return
				}
			}
		}
	}
}
