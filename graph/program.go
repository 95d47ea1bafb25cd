package graph

import "slices"

// Program is a graph compiled under a plan: a schedule of steps, and a place for
// every value in one arena. It holds no memory and can be made for a model of
// any size; a Machine runs it.
type Program struct {
	Graph *Graph
	Plan  *Plan
	Steps []*Step
	// Storages are the pieces of the arena: values in the order of their birth, and the scratch
	// variables that the Program touches.
	Storages []*Storage
	// Host are the results that live on the host.
	Host []*Storage
	// ArenaBytes is the size of the arena, at the bounds of dynamic rows.
	ArenaBytes int64
	// SpillBytes is the room that what is offloaded takes outside the arena, at the bounds
	// of dynamic rows.
	SpillBytes int64

	commit  int        // index in Steps of the first commit step
	scratch []*Storage // of Storages, in the order of the arena
}

// CompileOptions of a Program; the zero value works.
type CompileOptions struct {
	// Plan says what is saved and what is rerun; nil saves everything.
	Plan *Plan
}

// Compile schedules a finished graph under a plan and places its values.
func Compile(g *Graph, o CompileOptions) (*Program, error) {
	if o.Plan == nil {
		o.Plan = SaveAll(g)
	}
	p, err := Schedule(g, o.Plan)
	if err != nil {
		return nil, err
	}
	p.ArenaBytes = place(p.Storages)
	return p, nil
}

// Memory is what a run of a Program needs, in bytes.
type Memory struct {
	// Persistent is the size of the Store's variables that the program touches, without scratch,
	// which lives in the arena.
	Persistent int64
	// Peak is the most that lives in the arena at one time, to the byte.
	Peak int64
	// Saved is what is carried over from forward to backward, on the host as well.
	Saved int64
	// SavedOnHost is the part of Saved that is on the host.
	SavedOnHost int64
	// Offloaded is what is carried over outside the arena, beside Saved.
	Offloaded int64
	// Arena is the size of the arena: Peak and what placement loses.
	Arena int64
}

// Total is what the device must have: persistent memory and the arena.
func (m Memory) Total() int64 { return m.Persistent + m.Arena }

// Memory is exact for the given live row counts.
func (p *Program) Memory(counts Counts) Memory {
	m := Memory{Arena: p.ArenaBytes, Peak: p.peak(counts)}
	seen := map[*Variable]bool{}
	for _, step := range p.Steps {
		for _, o := range step.in {
			if v := o.variable; v != nil && v.Kind != Scratch && !seen[v] {
				seen[v] = true
				m.Persistent += v.Spec.Bytes()
			}
		}
	}
	for _, st := range p.Saved() {
		m.Saved += st.BytesAt(counts)
		if st.onHost() {
			m.SavedOnHost += st.BytesAt(counts)
		}
	}
	for _, step := range p.Steps {
		if step.Kind == CopyOut {
			m.Offloaded += step.in[0].storage.BytesAt(counts)
		}
	}
	return m
}

// Bound is the memory with every dynamic row count at its bound.
func (p *Program) Bound() Memory { return p.Memory(nil) }

// LiveBytes gives, for every step from the feeding of inputs (0) to the reading
// of outputs, the bytes that live in the arena.
func (p *Program) LiveBytes(counts Counts) []int64 {
	return p.live(counts, func(*Storage) bool { return true })
}

// PeakStep is the first step at which most bytes live in the arena, counted as by LiveBytes.
func (p *Program) PeakStep(counts Counts) int {
	live := p.LiveBytes(counts)
	return slices.Index(live, slices.Max(live))
}

// Moment names a step as LiveBytes counts them: by its node, in front of the first and
// behind the last by what happens there.
func (p *Program) Moment(index int) string {
	switch {
	case index <= 0:
		return "the feeding of inputs"
	case index > len(p.Steps):
		return "the reading of outputs"
	}
	return p.Steps[index-1].Node.Name
}

// LiveSavedBytes gives the part of LiveBytes that is carried over to backward.
func (p *Program) LiveSavedBytes(counts Counts) []int64 {
	return p.live(counts, func(st *Storage) bool { return st.Saved })
}

func (p *Program) live(counts Counts, filter func(*Storage) bool) []int64 {
	change := make([]int64, len(p.Steps)+3)
	for _, st := range p.Storages {
		if filter(st) {
			n := st.BytesAt(counts)
			change[st.Begin] += n
			change[st.End+1] -= n
		}
	}
	var live int64
	for i, d := range change {
		live += d
		change[i] = live
	}
	return change[:len(p.Steps)+2]
}

func (p *Program) peak(counts Counts) int64 {
	return slices.Max(p.LiveBytes(counts))
}

// Cost sums the cost of all runs of nodes for which the filter holds.
func (p *Program) Cost(filter func(*Step) bool) Cost {
	var sum Cost
	for _, s := range p.Steps {
		if s.Computes() && filter(s) {
			sum = sum.Add(s.Node.Cost)
		}
	}
	return sum
}

// ForwardFLOPs are the FLOPs executed by first runs of forward nodes.
func (p *Program) ForwardFLOPs() float64 {
	return p.Cost(func(s *Step) bool { return !s.Backward() }).ExecutedFLOPs
}

// BackwardFLOPs are the FLOPs executed after forward, reruns included.
func (p *Program) BackwardFLOPs() float64 { return p.Cost((*Step).Backward).ExecutedFLOPs }

// RecomputedFLOPs are the FLOPs of reruns.
func (p *Program) RecomputedFLOPs() float64 {
	return p.Cost(func(s *Step) bool { return s.Kind == Recompute }).ExecutedFLOPs
}

// ModelFLOPs are the FLOPs that the model's definition asks for.
func (p *Program) ModelFLOPs() float64 {
	return p.Cost(func(s *Step) bool { return s.Kind == Run }).ModelFLOPs
}

// ExecutedFLOPs are the FLOPs of all steps.
func (p *Program) ExecutedFLOPs() float64 {
	return p.Cost(func(*Step) bool { return true }).ExecutedFLOPs
}

// Reruns returns the nodes that run twice, in the order of their second run.
func (p *Program) Reruns() []*Node {
	var out []*Node
	for _, s := range p.Steps {
		if s.Kind == Recompute {
			out = append(out, s.Node)
		}
	}
	return out
}

// Boundary is the index of the first step of the backward pass that computes; without one,
// that of the reading of outputs.
func (p *Program) Boundary() int { return boundary(p.Steps) }

// Carried is how many bytes live in the arena over the boundary, with the given live rows:
// saved values, inputs that backward reads, and what is on its way between ranks.
func (p *Program) Carried(counts Counts) int64 {
	var sum int64
	at := p.Boundary()
	for _, st := range p.Storages {
		if st.Begin < at && st.End >= at {
			sum += st.BytesAt(counts)
		}
	}
	return sum
}

// Saved returns the storages that carry forward values over to backward.
func (p *Program) Saved() []*Storage {
	var out []*Storage
	for _, list := range [][]*Storage{p.Storages, p.Host} {
		for _, st := range list {
			if st.Saved {
				out = append(out, st)
			}
		}
	}
	return out
}
