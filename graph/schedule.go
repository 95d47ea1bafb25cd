package graph

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/device"
)

// StepKind says why a step is in the schedule.
type StepKind uint8

const (
	// Run is a node's one regular run.
	Run StepKind = iota
	// Recompute is a second run of a forward node, just before the first later
	// node that needs it.
	Recompute
	// Wait blocks the compute lane until an asynchronous step has finished.
	Wait
	// CopyOut copies a result of the node out of the arena.
	CopyOut
	// CopyBack copies it back.
	CopyBack
)

func (k StepKind) String() string {
	return [...]string{"run", "rerun", "wait", "offload", "reload"}[k]
}

// Step is one entry of a schedule.
type Step struct {
	Index int
	Kind  StepKind
	Node  *Node
	Lane  Lane

	in        []operand
	out       []*Storage // nil for an output that nobody reads and the op can omit
	workspace *Storage
	waits     *Step // for Wait: the asynchronous step
	spill     int64 // for copies: the offset where the result is offloaded to
}

// Backward reports whether the step runs after the forward pass.
func (s *Step) Backward() bool {
	return s.Kind == Recompute || s.Kind == CopyBack || s.Node.Phase != Forward
}

// Computes reports whether the step runs its node: it neither waits nor copies.
func (s *Step) Computes() bool { return s.Kind == Run || s.Kind == Recompute }

// Awaits is the asynchronous step that a Wait waits for, nil for other steps.
func (s *Step) Awaits() *Step { return s.waits }

// InputSpecs and OutputSpecs are the specs of the step's operands in a run with the
// given live rows.
func (s *Step) InputSpecs(counts Counts) []device.Spec {
	if s.Kind == CopyOut {
		return counts.narrowAll([]device.Spec{s.copied().Spec()})
	}
	if s.Kind == CopyBack {
		return nil
	}
	return counts.narrowAll(s.Node.inputSpecs())
}

func (s *Step) OutputSpecs(counts Counts) []device.Spec {
	if s.Kind == CopyBack {
		return counts.narrowAll([]device.Spec{s.copied().Spec()})
	}
	if s.Kind == CopyOut {
		return nil
	}
	return counts.narrowAll(slices.Clone(s.Node.Out))
}

// Cost of the step in a run with the given live rows; waiting costs nothing.
func (s *Step) Cost(counts Counts) Cost {
	switch s.Kind {
	case Wait:
		return Cost{}
	case CopyOut, CopyBack:
		return Traffic(0, s.InputSpecs(counts), s.OutputSpecs(counts))
	}
	return s.Node.CostAt(counts)
}

// operand is where a step finds one input: a storage, a variable, or host
// memory that is fed; behind it views.
type operand struct {
	storage  *Storage
	variable *Variable
	input    *Node // an input that stays on the host
	views    []Viewer
}

// scheduler orders the nodes of a graph and inserts reruns.
type scheduler struct {
	g     *Graph
	plan  *Plan
	need  []bool
	rerun []bool // by node: the rerun has been scheduled
	steps []*Step
	// current storage of each output, by node.
	current [][]*Storage
	// delayed are the mutators that follow a node, by node.
	delayed  [][]*Node
	storages []*Storage
	host     []*Storage // results on the host
	scratch  []*Storage // of scratch variables
	kept     []bool     // by node: an output of the program, never rerun
	waited   []bool     // by Wait node: the wait for the latest run has been scheduled
	spill    int64      // bytes of what is offloaded
	workers  int
}

// newScheduler runs the whole scheduling.
func newScheduler(g *Graph, plan *Plan, workers int) (*scheduler, error) {
	n := len(g.Nodes)
	s := &scheduler{g: g, plan: plan, need: g.needed(), rerun: make([]bool, n), current: make([][]*Storage, n),
		delayed: make([][]*Node, n), kept: make([]bool, n), waited: make([]bool, n), workers: workers}
	for _, o := range g.Outputs {
		s.kept[o.Edge.Base().Node.ID] = true
	}
	s.feed()
	var commits []*Node
	order := s.delayMutators()
	for _, node := range order {
		switch {
		case node.Commit:
			commits = append(commits, node)
		default:
			s.visit(node)
		}
	}
	for _, node := range commits {
		s.visit(node)
	}
	s.fetch()
	return s, s.checkMutations()
}

// feed makes the storages of inputs, which are written before the first step.
func (s *scheduler) feed() {
	for _, n := range s.g.Inputs {
		if s.need[n.ID] && !onHost(n) {
			s.current[n.ID] = []*Storage{s.store(Edge{n, 0}, 0, false)}
		}
	}
}

func onHost(n *Node) bool { return n.Out[0].Place != 0 }

// delayMutators returns the needed ops in order, with each mutator but commits
// put behind the last of its inputs, or later if that is a reduction, and an asynchronous one
// behind the last node that touches what it overwrites.
func (s *scheduler) delayMutators() []*Node {
	var order []*Node
	d := delays{place: map[*Node]int{}, touched: map[*Variable]*Node{}, reductions: newReductions(s.g, s.need)}
	for _, n := range s.g.Nodes {
		if !s.need[n.ID] || !n.IsOp() {
			continue
		}
		d.place[n] = n.ID
		if behind := d.anchor(n); behind != nil {
			s.delayed[behind.ID] = append(s.delayed[behind.ID], n)
			d.place[n] = d.place[behind]
		} else {
			order = append(order, n)
		}
		if n.IsView() {
			continue
		}
		for _, e := range n.In {
			if v := e.Base().Node.Variable; v != nil {
				d.touched[v] = d.later(d.touched[v], n)
			}
		}
	}
	return order
}

// delays finds out what mutators follow.
type delays struct {
	place      map[*Node]int       // id of the node in order that a node runs at or behind
	touched    map[*Variable]*Node // by the last node so far
	reductions *reductions
}

// later of two nodes, each of which may be nil.
func (d *delays) later(m, n *Node) *Node {
	if m == nil || n != nil && cmp.Or(cmp.Compare(d.place[n], d.place[m]), cmp.Compare(n.ID, m.ID)) > 0 {
		return n
	}
	return m
}

// anchor is the node that n follows, nil for what keeps its place.
func (d *delays) anchor(n *Node) *Node {
	if !isMutator(n.Op) || n.Commit {
		return nil
	}
	_, asynchronous := n.Op.(Asynchronous)
	var last *Node
	for _, e := range n.In {
		m := e.Base().Node
		if m.IsOp() {
			last = d.later(last, m)
		} else if asynchronous {
			last = d.later(last, d.touched[m.Variable])
		}
	}
	if last == nil || last.Commit || isMutator(last.Op) && !asynchronous {
		return nil
	}
	if !asynchronous {
		last = d.later(last, d.reductions.behind(last))
	}
	return last
}

// visit schedules one regular run, with the reruns it needs before it and the
// mutators that wait for it behind it.
func (s *scheduler) visit(n *Node) {
	if n.Phase != Forward {
		for _, e := range n.In {
			s.ensure(e)
		}
	}
	s.emit(n, Run)
	for _, m := range s.delayed[n.ID] {
		s.visit(m)
	}
}

// ensure schedules the rerun of what an edge needs, inputs first. Each node is
// rerun at most once; its results then live until their last reader.
func (s *scheduler) ensure(e Edge) {
	n := e.Node
	if n.IsView() {
		s.ensure(n.In[0])
		return
	}
	if !s.reruns(n) || s.rerun[n.ID] {
		return
	}
	s.rerun[n.ID] = true
	for _, in := range n.In {
		s.ensure(in)
	}
	s.emit(n, Recompute)
}

func (s *scheduler) reruns(n *Node) bool {
	return n.IsOp() && n.Phase == Forward && !s.kept[n.ID] && s.plan.Entries[n.ID].Choice == Rerun
}

// emit appends a step, unless n is a view, and records what it reads and writes.
func (s *scheduler) emit(n *Node, kind StepKind) {
	if n.IsView() {
		return // waits are scheduled where something reads them
	}
	for _, e := range n.In {
		s.settle(e)
	}
	step := s.append(n, kind)
	if a, ok := n.Op.(Asynchronous); ok {
		step.Lane = a.Lane()
		for _, u := range n.users {
			s.waited[u.ID] = false
		}
	}
	for _, e := range n.In {
		step.in = append(step.in, s.read(e, step.Index))
	}
	s.current[n.ID] = nil
	for i := range n.Out {
		st := s.store(Edge{n, i}, step.Index, kind == Recompute)
		st.producer = step
		s.current[n.ID] = append(s.current[n.ID], st)
	}
	step.out = s.current[n.ID]
	if w := n.Op.Workspace(n.inputSpecs(), s.workers); w > 0 {
		step.workspace = &Storage{Begin: step.Index, End: step.Index, bytes: w, workspace: true, workers: s.workers, Edge: Edge{n, 0}}
		s.storages = append(s.storages, step.workspace)
	}
}

func (s *scheduler) append(n *Node, kind StepKind) *Step {
	step := &Step{Index: len(s.steps) + 1, Kind: kind, Node: n, Lane: Compute}
	s.steps = append(s.steps, step)
	return step
}

// settle schedules the wait for an asynchronous value just before its first reader,
// so that all that was built in between overlaps with it. The operands of the
// asynchronous step stay in memory until then.
func (s *scheduler) settle(e Edge) {
	for ; e.Node.IsView(); e = e.Node.In[0] {
		n := e.Node
		if !isWait(n) || s.waited[n.ID] {
			continue
		}
		s.waited[n.ID] = true
		step := s.append(n, Wait)
		from := s.read(n.In[0], step.Index)
		step.waits = from.storage.producer
		hold := func(st *Storage) {
			if st != nil {
				st.End = max(st.End, step.Index)
			}
		}
		for _, o := range step.waits.in {
			hold(o.storage)
		}
		for _, st := range step.waits.out {
			hold(st)
		}
		hold(step.waits.workspace)
	}
}

func isWait(n *Node) bool {
	_, ok := n.Op.(Waiter)
	return ok
}

// Waiter is the view of an asynchronous op's output that may be read: running it
// means waiting for the op's lane. An asynchronous value has one Waiter, which all its
// readers share.
type Waiter interface {
	Viewer

	// Waits marks the op; it does nothing.
	Waits()
}

func (s *scheduler) store(e Edge, begin int, rerun bool) *Storage {
	st := &Storage{Edge: e, Begin: begin, End: begin, Rerun: rerun, bytes: e.Spec().Bytes()}
	s.storages = append(s.storages, st)
	return st
}

// read resolves an edge to where its memory is, and keeps that alive.
func (s *scheduler) read(e Edge, step int) operand {
	var views []Viewer
	for e.Node.IsView() {
		views = append(views, e.Node.Op.(Viewer))
		e = e.Node.In[0]
	}
	slices.Reverse(views)
	o := operand{views: views}
	switch n := e.Node; {
	case n.Variable != nil:
		o.variable = n.Variable
	case !n.IsOp() && onHost(n):
		o.input = n
	default:
		o.storage = s.current[n.ID][e.Out]
		o.storage.read(step)
	}
	return o
}

// fetch keeps the outputs alive to the end.
func (s *scheduler) fetch() {
	for _, o := range s.g.Outputs {
		s.settle(o.Edge)
	}
	end := len(s.steps) + 1
	for _, o := range s.g.Outputs {
		if st := s.read(o.Edge, 0).storage; st != nil {
			st.End = end
		}
	}
}

// checkMutations refuses a schedule in which a node that was built before a variable
// was overwritten reads it afterwards: a rerun, say. Nodes built after the mutator
// mean the new value, and may not come before it has arrived.
func (s *scheduler) checkMutations() error {
	written := map[*Variable]*Step{}
	arrived := map[*Step]bool{}
	for _, step := range s.steps {
		arrived[step.waits] = true
		for _, o := range step.in {
			if w := written[o.variable]; o.variable != nil && w != nil && w.Lane != Compute && !arrived[w] {
				return fmt.Errorf("graph: %s touches %q, which %s is overwriting on its lane: wait for that first", step.Node.Name, o.variable.Name, w.Node.Name)
			}
			if w := written[o.variable]; o.variable != nil && w != nil && step.Node.ID < w.Node.ID {
				return fmt.Errorf("graph: %s reads %q, which %s has overwritten before: use the value that was written, or Update",
					step.Node.Name, o.variable.Name, w.Node.Name)
			}
		}
		for _, i := range step.Node.Mutates() {
			written[step.in[i].variable] = step
		}
	}
	return nil
}
