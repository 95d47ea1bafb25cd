package graph

import (
	"slices"

	"github.com/lethe-go/lethe/device"
)

// CopyLane is the lane of copies between the arena and where values are offloaded to.
const CopyLane Lane = "copy"

// Pace says how long things take, so that copies set out early enough and no earlier. Like
// a plan it must be the same on every rank.
type Pace interface {
	// Nanoseconds of one run of n, at the bound of dynamic rows.
	Nanoseconds(n *Node) int64
	// CopyNanoseconds is the time of one copy between the arena and where values are
	// offloaded to.
	CopyNanoseconds(bytes int64) int64
	// CopyLoad is by how many nanoseconds one copy holds up what runs beside it, for it takes
	// of the same memory and processors.
	CopyLoad(bytes int64) int64
}

// instant is the Pace of plans without one: copies take no time, so that they are waited
// for right where they are made.
type instant struct{}

func (instant) Nanoseconds(*Node) int64     { return 0 }
func (instant) CopyNanoseconds(int64) int64 { return 0 }
func (instant) CopyLoad(int64) int64        { return 0 }

// trip is a value's way out of the arena and back.
type trip struct {
	from, to *Storage // its memory in forward, and in backward
	// last and first are the steps that use it last in forward and first in backward. Its
	// copy away is waited for behind step gone, and that back sets out before step back.
	last, first, gone, back int

	offload, reload *Step
}

// sendAway inserts the copies of what the plan offloads: away behind the last forward step
// that uses a value, and back in time for the first backward step that does, be it a rerun.
// The order of all other steps is final by now.
func (s *scheduler) sendAway() {
	boundary := boundary(s.steps)
	trips := s.trips(boundary)
	if len(trips) == 0 {
		return
	}
	c := newTimeline(s.steps, s.plan.Pace)
	behind := make([][]*Step, len(s.steps)+1) // by step: what is inserted behind it
	put := func(at int, step *Step) *Step {
		behind[at] = append(behind[at], step)
		return step
	}
	// Where several are inserted at one place, copies set out before others are waited for,
	// and memory is given up before more is taken.
	c.offloads(trips, boundary)
	for _, t := range trips {
		t.offload = put(t.last, t.step(CopyOut))
		t.offload.in = []operand{{storage: t.from}}
	}
	gone := make([]*Step, len(trips))
	for i, t := range trips {
		gone[i] = put(t.gone, t.wait(t.offload))
	}
	slices.SortStableFunc(trips, func(a, b *trip) int { return a.first - b.first })
	c.reloads(trips, boundary)
	for _, t := range trips {
		t.reload = put(t.back-1, t.step(CopyBack))
		t.reload.out = make([]*Storage, len(t.from.Edge.Node.Out))
		t.reload.out[t.from.Edge.Out] = t.to
	}
	for _, t := range trips {
		put(t.first-1, t.wait(t.reload))
	}
	s.bringBack(trips, boundary)
	steps := slices.Clone(behind[0])
	for i, step := range s.steps {
		steps = append(append(steps, step), behind[i+1]...)
	}
	s.reorder(steps)
	for _, step := range gone {
		step.waits.in[0].storage.End = step.Index
	}
	for _, t := range trips {
		t.to.Begin = t.reload.Index
		t.offload.spill, t.reload.spill = s.spill, s.spill
		s.spill += device.Align(t.from.bytes, device.SpillAlignment)
	}
}

func (t *trip) step(kind StepKind) *Step {
	return &Step{Kind: kind, Node: t.from.Edge.Node, Lane: CopyLane}
}

func (t *trip) wait(s *Step) *Step {
	return &Step{Kind: Wait, Node: s.Node, Lane: Compute, waits: s}
}

// trips are the saved values that leave the arena, in the order of their last use in
// forward. One that something still reads or writes on its lane as backward begins stays.
func (s *scheduler) trips(boundary int) []*trip {
	of := map[*Storage]*trip{}
	for _, st := range s.storages {
		n := st.Edge.Node
		if st.Saved && s.plan.Entries[n.ID].Choice == Offload && !s.kept[n.ID] {
			of[st] = &trip{from: st, last: st.Begin}
		}
	}
	for _, step := range s.steps {
		step.uses(func(st *Storage) {
			t := of[st]
			switch {
			case t == nil:
			case step.Index < boundary:
				t.last = step.Index
			case step.Kind == Wait && step.waits.Index < boundary:
				delete(of, st)
			case t.first == 0:
				t.first = step.Index
			}
		})
	}
	var trips []*trip
	for _, st := range s.storages {
		if t := of[st]; t != nil && t.first > 0 {
			t.to = &Storage{Edge: st.Edge, Reloaded: true, bytes: st.bytes, reads: st.reads, Begin: t.first, End: st.End, lastStep: st.lastStep}
			trips = append(trips, t)
		}
	}
	slices.SortStableFunc(trips, func(a, b *trip) int { return a.last - b.last })
	return trips
}

// uses calls f with the storages of the arena that must stay as they are up to the step.
func (s *Step) uses(f func(*Storage)) {
	for _, o := range s.in {
		f(o.storage)
	}
	if s.waits != nil {
		s.waits.uses(f)
		for _, st := range s.waits.out {
			f(st)
		}
	}
}

// bringBack lets backward read the reloaded values in place of the first ones.
func (s *scheduler) bringBack(trips []*trip, boundary int) {
	back := map[*Storage]*Storage{}
	for _, t := range trips {
		back[t.from] = t.to
		t.from.Saved, t.from.lastStep, t.from.End = false, t.last, t.last
		s.storages = append(s.storages, t.to)
	}
	for _, step := range s.steps[boundary-1:] {
		for i, o := range step.in {
			if to := back[o.storage]; to != nil {
				step.in[i].storage = to
			}
		}
	}
}

// copied is the result that the step copies.
func (s *Step) copied() Edge {
	if s.Kind == CopyOut {
		return s.in[0].storage.Edge
	}
	i := slices.IndexFunc(s.out, func(st *Storage) bool { return st != nil })
	return s.out[i].Edge
}

// timeline is the time that the steps of the compute lane take, behind each.
type timeline struct {
	pace   Pace
	behind []int64
}

func newTimeline(steps []*Step, pace Pace) *timeline {
	if pace == nil {
		pace = instant{}
	}
	c := &timeline{pace: pace, behind: make([]int64, len(steps)+1)}
	for i, step := range steps {
		c.behind[i+1] = c.behind[i]
		if step.Computes() && step.Lane == Compute {
			c.behind[i+1] += pace.Nanoseconds(step.Node)
		}
	}
	return c
}

// offloads decides where copies away are waited for: where they have ended, or else where
// as many others set out as the layer has, so that no more than a layer's are on their way.
func (c *timeline) offloads(trips []*trip, boundary int) {
	var end int64
	at, inLayer := 0, tripsByLayer(trips)
	for i, t := range trips {
		end = max(end, c.behind[t.last]) + c.pace.CopyNanoseconds(t.from.bytes)
		at = max(at, t.last)
		for at < boundary-1 && c.behind[at] < end {
			at++
		}
		t.gone = at
		if next := i + inLayer(t); next < len(trips) {
			t.gone = min(at, trips[next].last)
		}
	}
}

// reloads decides where copies back set out: just in time, but behind the arrival of the
// one that is as many before it as the layer has.
func (c *timeline) reloads(trips []*trip, boundary int) {
	start := c.behind[len(c.behind)-1]
	at, inLayer := len(c.behind)-1, tripsByLayer(trips)
	for i, t := range slices.Backward(trips) {
		start = min(start, c.behind[t.first-1]) - c.pace.CopyNanoseconds(t.from.bytes)
		at = min(at, t.first)
		for at > boundary && c.behind[at-1] > start {
			at--
		}
		t.back = at
		if before := i - inLayer(t); before >= 0 {
			t.back = max(at, trips[before].first)
		}
	}
}

// tripsByLayer counts, for a trip, those of its layer.
func tripsByLayer(trips []*trip) func(*trip) int {
	count := map[*Region]int{}
	for _, t := range trips {
		count[layerOf(t.from.Edge.Node)]++
	}
	count[nil] = 1 // what is in no region is a layer by itself
	return func(t *trip) int { return count[layerOf(t.from.Edge.Node)] }
}
