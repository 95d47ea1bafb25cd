package graph

import "slices"

// This file decides when what travels beside compute sets out and is waited for, beyond the
// order in which it was built: one layer ahead and one layer behind. A layer is an outermost
// region; what is in none is a layer by itself.

// layerOf is the outermost region that a node is in, or nil.
func layerOf(n *Node) *Region {
	r := n.Region
	for r != nil && r.Parent != nil {
		r = r.Parent
	}
	return r
}

// reductions are the asynchronous nodes of the backward pass, lane by lane. A node that
// stores the result of one is put off until as many others have set out behind it as its
// layer has: it travels while the layer before it, in the model, computes its gradients,
// and no more than one layer's are held in memory for that.
type reductions struct {
	lanes map[Lane][]*Node
	index map[*Node]int // in its lane
	end   *Node         // the last node of the backward pass
}

func newReductions(g *Graph, need []bool) *reductions {
	r := &reductions{lanes: map[Lane][]*Node{}, index: map[*Node]int{}}
	for _, n := range g.Nodes {
		if n.Phase != Backward || !need[n.ID] || !n.IsOp() || n.IsView() {
			continue
		}
		r.end = n
		if a, ok := n.Op.(Asynchronous); ok {
			lane := a.Lane()
			r.index[n] = len(r.lanes[lane])
			r.lanes[lane] = append(r.lanes[lane], n)
		}
	}
	return r
}

// behind is the node after which the result of n is stored, nil if n is no reduction.
func (r *reductions) behind(n *Node) *Node {
	i, ok := r.index[n]
	if !ok {
		return nil
	}
	lane := r.lanes[n.Op.(Asynchronous).Lane()]
	layer := layerOf(n)
	lo, hi := i, i+1
	for layer != nil && lo > 0 && layerOf(lane[lo-1]) == layer {
		lo--
	}
	for layer != nil && hi < len(lane) && layerOf(lane[hi]) == layer {
		hi++
	}
	if i += hi - lo; i < len(lane) {
		return lane[i]
	}
	return r.end
}

// setOutAhead moves every asynchronous step that reads nothing but variables, such as the
// gathering of a layer's parameters, to where those of the layer before it, in the schedule,
// are waited for first: it travels while that layer computes.
func (s *scheduler) setOutAhead() {
	target := s.targets()
	if len(target) == 0 {
		return
	}
	ahead := map[int][]*Step{} // by the index of the step they come before
	for _, step := range s.steps {
		if at, ok := target[step]; ok {
			ahead[at] = append(ahead[at], step)
		}
	}
	steps := make([]*Step, 0, len(s.steps))
	for _, step := range s.steps {
		steps = append(steps, ahead[step.Index]...)
		if _, moved := target[step]; !moved {
			steps = append(steps, step)
		}
	}
	s.reorder(steps)
}

// reorder makes steps the schedule: those of now in another order, and new ones, whose
// Index is 0.
func (s *scheduler) reorder(steps []*Step) {
	renumber := make([]int, len(s.steps)+2)
	for i, step := range steps {
		if step.Index > 0 {
			renumber[step.Index] = i + 1
		}
		step.Index = i + 1
	}
	renumber[len(renumber)-1] = len(steps) + 1
	s.steps = steps
	for _, list := range [][]*Storage{s.storages, s.host} {
		for _, st := range list {
			st.Begin, st.End, st.lastStep = renumber[st.Begin], renumber[st.End], renumber[st.lastStep]
		}
	}
}

// targets gives, for each step that sets out ahead, the index of the step it comes before.
func (s *scheduler) targets() map[*Step]int {
	target := map[*Step]int{}
	firstWait := map[*Step]int{}
	for _, step := range s.steps {
		if w := step.waits; w != nil && firstWait[w] == 0 {
			firstWait[w] = step.Index
		}
	}
	written := map[*Variable]int{}
	wait := 0 // index of the first wait for a step of the layer before
	var layer []*Step
	begin := 0
	for _, step := range s.steps {
		if !step.readsOnlyVariables() {
			for _, i := range step.Node.Mutates() {
				written[step.in[i].variable] = step.Index
			}
			continue
		}
		if len(layer) == 0 || !sameLayer(layer[0], step) {
			wait = earliest(layer, firstWait)
			layer, begin = nil, step.Index
			if wait > 0 {
				begin = min(begin, wait)
			}
		}
		layer = append(layer, step)
		at := begin
		for _, o := range step.in {
			at = max(at, written[o.variable]+1)
		}
		target[step] = min(at, step.Index)
	}
	return target
}

// readsOnlyVariables reports whether an asynchronous step could run at any time as long as
// nothing overwrites what it reads.
func (s *Step) readsOnlyVariables() bool {
	if s.Lane == Compute || s.Kind == Wait || len(s.in) == 0 || isMutator(s.Node.Op) {
		return false
	}
	return !slices.ContainsFunc(s.in, func(o operand) bool { return o.variable == nil })
}

func sameLayer(a, b *Step) bool {
	layer := layerOf(a.Node)
	return layer != nil && layer == layerOf(b.Node) && a.Kind == b.Kind
}

// earliest is the first of the waits for some steps, 0 without any.
func earliest(steps []*Step, waits map[*Step]int) int {
	first := 0
	for _, step := range steps {
		if w := waits[step]; w > 0 && (first == 0 || w < first) {
			first = w
		}
	}
	return first
}
