package graph

import (
	"github.com/lethe-go/lethe/device"
)

// Storage is one value's piece of the arena: the bytes at [Offset, Offset+Bytes)
// hold it from step Begin to step End, both included. A node that is rerun or
// offloaded has two storages. That of a scratch variable begins where it is overwritten, or
// before everything, and lasts to the end. Step 0 feeds the inputs; the step behind the last
// reads the outputs.
type Storage struct {
	Edge       Edge
	Begin, End int
	Rerun      bool // written by the second run of its node
	Reloaded   bool // holds a value that was offloaded, for backward
	Offset     int64
	// Saved storages carry a forward value over to the backward pass.
	Saved bool

	bytes     int64
	workspace bool
	workers   int // for workspace: whose size may depend on it
	reads     int
	lastStep  int       // last step that reads it, 0 if only the reading of outputs does
	producer  *Step     // nil for inputs
	placed    *Variable // the value is computed in the memory of this scratch variable
	variable  *Variable // whose memory this is, for scratch variables
}

func (st *Storage) read(step int) {
	st.End = max(st.End, step)
	st.lastStep = max(st.lastStep, step)
	st.reads++
}

// onHost reports whether the storage is host memory, which is not in the arena.
func (st *Storage) onHost() bool {
	return !st.workspace && st.Edge.Spec().Place == device.OnHost
}

// Bytes is the size at the bound of dynamic rows.
func (st *Storage) Bytes() int64 { return st.bytes }

// Workspace reports whether the storage is a node's scratch memory.
func (st *Storage) Workspace() bool { return st.workspace }

// Scratch reports whether the storage is that of a scratch variable.
func (st *Storage) Scratch() bool { return st.variable != nil }

// BytesAt is the size with the given live rows.
func (st *Storage) BytesAt(counts Counts) int64 {
	if st.workspace {
		return st.Edge.Node.Op.Workspace(counts.narrowAll(st.Edge.Node.inputSpecs()), st.workers)
	}
	return counts.narrow(st.Edge.Spec()).Bytes()
}

// Counts gives live row counts. A count that is missing means the bound.
type Counts map[device.Rows]int

// narrow returns a spec with its live rows in place of the bound.
func (c Counts) narrow(s device.Spec) device.Spec {
	n, ok := c[s.Rows]
	if s.Rows == 0 || !ok {
		return s
	}
	s = s.WithShape(s.Shape...)
	s.Shape[0] = n
	return s
}

// narrowAll narrows specs in place.
func (c Counts) narrowAll(specs []device.Spec) []device.Spec {
	for i, s := range specs {
		specs[i] = c.narrow(s)
	}
	return specs
}

// finish settles the storages once all readers are known: outputs nobody reads
// are dropped where the op allows it, assignments to scratch variables are
// computed in place, what carries over to backward is marked, what can set out
// ahead does, what is offloaded leaves, and scratch variables are born.
func (s *scheduler) finish() {
	s.dropUnread()
	s.assignInPlace()
	boundary := boundary(s.steps)
	live := s.storages[:0]
	for _, st := range s.storages {
		if st.placed != nil || st.bytes == 0 {
			continue
		}
		n := st.Edge.Node
		st.Saved = !st.workspace && !st.Rerun && n.IsOp() && n.Phase == Forward && st.Begin < boundary && st.lastStep >= boundary
		if st.onHost() {
			s.host = append(s.host, st)
			continue
		}
		live = append(live, st)
	}
	s.storages = live
	s.setOutAhead()
	s.sendAway()
	s.addScratch()
}

// boundary is the index of the first step of the backward pass on the compute lane, or the
// one behind the last step. What travels for backward may set out before. Reruns come right
// before the first backward node that needs them, maybe with waits in between.
func boundary(steps []*Step) int {
	for _, step := range steps {
		if step.Lane == Compute && (step.Kind == Recompute || step.Node.Phase == Backward) {
			return step.Index
		}
	}
	return len(steps) + 1
}

func (s *scheduler) dropUnread() {
	dropped := map[*Storage]bool{}
	for _, step := range s.steps {
		o, ok := step.Node.Op.(OptionalOutputs)
		for i, st := range step.out {
			if ok && st.reads == 0 && o.Optional(i) {
				step.out[i] = nil
				dropped[st] = true
			}
		}
	}
	live := s.storages[:0]
	for _, st := range s.storages {
		if !dropped[st] {
			live = append(live, st)
		}
	}
	s.storages = live
}

// assignInPlace lets the value of an Assign to a scratch variable be computed
// right where it belongs, which spares the copy and the transient. That is
// allowed where nothing touches the variable before, nor behind while the value is read.
func (s *scheduler) assignInPlace() {
	uses := map[*Variable][]int{} // steps, in order
	for _, step := range s.steps {
		for _, o := range step.in {
			if o.variable != nil {
				uses[o.variable] = append(uses[o.variable], step.Index)
			}
		}
	}
	alone := func(v *Variable, step *Step, from *Storage) bool {
		u := uses[v]
		return u[0] == step.Index && (len(u) == 1 || from.End < u[1])
	}
	kept := map[*Storage]bool{}
	for _, o := range s.g.Outputs {
		if b := o.Edge.Base(); s.current[b.Node.ID] != nil {
			kept[s.current[b.Node.ID][b.Out]] = true
		}
	}
	for _, step := range s.steps {
		if _, ok := step.Node.Op.(assign); !ok || step.Node.Commit {
			continue
		}
		v, from := step.in[0].variable, step.in[1].storage
		if v == nil || v.Kind != Scratch || from == nil || from.placed != nil || from.producer == nil || !alone(v, step, from) ||
			kept[from] || from.bytes != v.Spec.Bytes() || from.Edge.Spec().Rows != 0 {
			continue
		}
		from.placed = v
		step.Kind = elided
	}
	s.removeElided()
}

// elided marks a step that turned out to be unnecessary; none is left in a Program.
const elided StepKind = 255

// removeElided drops elided steps and renumbers the rest.
func (s *scheduler) removeElided() {
	renumber := make([]int, len(s.steps)+2)
	steps := s.steps[:0]
	for old, step := range s.steps {
		if step.Kind != elided {
			steps = append(steps, step)
			step.Index = len(steps)
		}
		renumber[old+1] = len(steps)
	}
	renumber[len(renumber)-1] = len(steps) + 1
	s.steps = steps
	for _, st := range s.storages {
		st.Begin, st.End, st.lastStep = renumber[st.Begin], renumber[st.End], renumber[st.lastStep]
	}
}
