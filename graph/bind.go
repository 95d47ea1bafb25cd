package graph

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
)

// boundStep is a step with its tensors.
type boundStep struct {
	step    *Step
	exec    Exec
	in, out []device.Tensor
	// Places of the operands, for tensors that change from run to run.
	inLocations, outLocations []location
	dynamic                   bool
	decides                   []device.Rows // row counts that this step decides

	original *original    // of a node that runs twice, if its runs are compared
	spill    device.Spill // of copies

	done chan error // for asynchronous steps: the result, one per run
}

// location is where an operand's memory is, before views and live rows.
type location struct {
	base  device.Tensor
	rows  device.Rows
	views []Viewer
}

// tensor is the operand narrowed to its live rows, seen through its views.
func (p *location) tensor(m *Machine) device.Tensor {
	t := p.base
	if t.IsZero() {
		return t
	}
	if p.rows != 0 {
		t = t.WithRows(m.liveRows(p.rows))
	}
	for _, v := range p.views {
		t = v.View(t)
	}
	return t
}

// boundInput is a fed input: its host memory, and its place in the arena unless
// it stays on the host.
type boundInput struct {
	node    *Node
	staging device.Tensor
	device  device.Tensor
}

func (in *boundInput) live(m *Machine) device.Tensor { return narrow(in.device, in.node, m) }
func (in *boundInput) host(m *Machine) device.Tensor { return narrow(in.staging, in.node, m) }

func narrow(t device.Tensor, n *Node, m *Machine) device.Tensor {
	if r := n.Out[0].Rows; r != 0 {
		return t.WithRows(m.liveRows(r))
	}
	return t
}

// boundOutput is an output and its host copy.
type boundOutput struct {
	name    string
	staging device.Tensor
	source  location
	rows    device.Rows
}

func (o *boundOutput) host(m *Machine) device.Tensor {
	if o.rows != 0 {
		return o.staging.WithRows(m.liveRows(o.rows))
	}
	return o.staging
}

// bind makes the tensors of all operands, in the Store's present arena.
func (m *Machine) bind() error {
	m.arena = m.store.arena
	if err := m.bindInputs(); err != nil {
		return err
	}
	p := m.program
	m.steps = make([]boundStep, len(p.Steps))
	for i, s := range p.Steps {
		b := &m.steps[i]
		b.step = s
		b.original = m.originals[s.Node]
		b.spill = m.store.spill
		b.exec = Exec{Kernels: m.queue, Running: s}
		if l := m.lanes[s.Lane]; l != nil {
			b.exec.Kernels = l.queue
		}
		if s.workspace != nil {
			b.exec.workspace = device.NewTensor(m.arena, s.workspace.Offset, device.Uint8, int(s.workspace.bytes))
		}
		for _, o := range s.in {
			b.inLocations = append(b.inLocations, m.operandLocation(o))
		}
		if err := m.hostMemory(s); err != nil {
			return err
		}
		for j, st := range s.out {
			b.outLocations = append(b.outLocations, m.storageLocation(st))
			if r := s.Node.Out[j].Rows; r != 0 {
				b.dynamic = true
				b.noteDecides(r)
			}
		}
		for _, pl := range b.inLocations {
			b.dynamic = b.dynamic || pl.rows != 0
		}
		b.in, b.out = make([]device.Tensor, len(b.inLocations)), make([]device.Tensor, len(b.outLocations))
		if s.Lane != Compute {
			b.done = make(chan error, 1)
		}
		b.resolve(m)
	}
	return m.bindOutputs()
}

// noteDecides records that the step's op decides a row count that none of its
// inputs has.
func (b *boundStep) noteDecides(r device.Rows) {
	if _, ok := b.step.Node.Op.(RowsOp); !ok || !b.step.Computes() {
		return
	}
	for _, e := range b.step.Node.In {
		if e.Spec().Rows == r {
			return
		}
	}
	b.decides = append(b.decides, r)
}

func (m *Machine) storageLocation(st *Storage) location {
	if st == nil {
		return location{}
	}
	s := st.Edge.Spec()
	if st.placed != nil {
		return location{base: st.placed.tensor.Reshape(s.Shape...)}
	}
	if b := m.host[st]; b != nil {
		return location{base: device.NewTensor(b, 0, s.DType, s.Shape...), rows: s.Rows}
	}
	return location{base: device.NewTensor(m.arena, st.Offset, s.DType, s.Shape...), rows: s.Rows}
}

// hostMemory allocates what a step writes on the host. It is kept for all runs.
func (m *Machine) hostMemory(s *Step) error {
	for _, st := range s.out {
		if st == nil || !st.onHost() || m.host[st] != nil {
			continue
		}
		b, err := m.dev.Alloc(device.OnHost, max(st.bytes, 1))
		if err != nil {
			return fmt.Errorf("graph: %s: %w", s.Node.Name, err)
		}
		m.host[st] = b
	}
	return nil
}

func (m *Machine) operandLocation(o operand) location {
	var p location
	switch {
	case o.variable != nil:
		p.base = o.variable.tensor
	case o.input != nil:
		p = location{base: m.Input(o.input.Name), rows: o.input.Out[0].Rows}
	default:
		p = m.storageLocation(o.storage)
	}
	p.views = o.views
	return p
}

func (m *Machine) bindInputs() error {
	first := m.inputs == nil
	for i, n := range m.program.Graph.Inputs {
		if first {
			b, err := m.dev.Alloc(device.OnHost, max(n.Out[0].Bytes(), 1))
			if err != nil {
				return fmt.Errorf("graph: input %q: %w", n.Name, err)
			}
			in := &boundInput{node: n, staging: device.NewTensor(b, 0, n.Out[0].DType, n.Out[0].Shape...)}
			m.inputs = append(m.inputs, in)
			if n.bound != nil {
				if err := copyValue(in.staging, n.bound); err != nil {
					return fmt.Errorf("graph: input %q: %w", n.Name, err)
				}
			}
		}
		m.inputs[i].device = device.Tensor{}
	}
	for _, st := range m.program.Storages {
		for _, in := range m.inputs {
			if st.Edge.Node == in.node && !st.workspace {
				in.device = m.storageLocation(st).base
			}
		}
	}
	return nil
}

func (m *Machine) bindOutputs() error {
	old := m.outputs
	m.outputs, m.losses = nil, nil
	last := newReader(m.program)
	for i, o := range m.program.Graph.Outputs {
		s := o.Edge.Spec()
		out := &boundOutput{name: o.Name, rows: s.Rows, source: m.operandLocation(last.operand(o.Edge))}
		if old != nil {
			out.staging = old[i].staging
		} else {
			b, err := m.dev.Alloc(device.OnHost, max(s.Bytes(), 1))
			if err != nil {
				return fmt.Errorf("graph: output %q: %w", o.Name, err)
			}
			out.staging = device.NewTensor(b, 0, s.DType, s.Shape...)
		}
		m.outputs = append(m.outputs, out)
		for _, l := range m.program.Graph.Losses {
			if l.Name == o.Name {
				m.losses = append(m.losses, out)
			}
		}
	}
	return nil
}

// reader finds where values are at the end of a program.
type reader struct{ last map[Edge]*Storage }

func newReader(p *Program) reader {
	r := reader{last: map[Edge]*Storage{}}
	for _, st := range p.Storages {
		if !st.workspace && st.Begin == 0 {
			r.last[st.Edge] = st
		}
	}
	for _, s := range p.Steps {
		for i, st := range s.out {
			if st != nil {
				r.last[Edge{s.Node, i}] = st
			}
		}
	}
	return r
}

func (r reader) operand(e Edge) operand {
	var o operand
	for e.Node.IsView() {
		o.views = append([]Viewer{e.Node.Op.(Viewer)}, o.views...)
		e = e.Node.In[0]
	}
	switch {
	case e.Node.Variable != nil:
		o.variable = e.Node.Variable
	case !e.Node.IsOp() && onHost(e.Node):
		o.input = e.Node
	default:
		o.storage = r.last[e]
	}
	return o
}

// prepare brings the tensors of a step with dynamic rows up to date.
func (b *boundStep) prepare(m *Machine) error {
	if !b.dynamic {
		return nil
	}
	for i := range b.inLocations {
		b.in[i] = b.inLocations[i].tensor(m)
	}
	if len(b.decides) > 0 {
		n, err := b.step.Node.Op.(RowsOp).LiveRows(b.in)
		if err == nil {
			for _, r := range b.decides {
				if err = m.SetRows(r, n); err != nil {
					break
				}
			}
		}
		if err != nil {
			return b.wrap(err)
		}
	}
	b.resolve(m)
	return nil
}

func (b *boundStep) resolve(m *Machine) {
	for i := range b.inLocations {
		b.in[i] = b.inLocations[i].tensor(m)
	}
	for i := range b.outLocations {
		b.out[i] = b.outLocations[i].tensor(m)
	}
}

// run executes the op on its lane's queue. Where kernels have finished on return,
// their errors are collected at once, so that the node can be named; otherwise only
// where the host waits for the device anyway.
func (b *boundStep) run(q device.Queue, sync bool) error {
	err := b.execute(q)
	if sync || b.step.Node.Effects.Has(HostSync) {
		if kernel := q.Sync(); err == nil {
			err = kernel
		}
	}
	if err != nil && b.step.Computes() {
		return b.wrap(err)
	}
	return err
}

// execute calls the op, or copies between the arena and the Spill.
func (b *boundStep) execute(q device.Queue) error {
	switch s := b.step; s.Kind {
	case CopyOut:
		return b.spill.Offload(q, s.spill, b.in[0])
	case CopyBack:
		return b.spill.Reload(q, b.out[s.copied().Out], s.spill)
	}
	return b.step.Node.Op.Run(&b.exec, b.out, b.in)
}

func (b *boundStep) wrap(err error) error {
	return fmt.Errorf("graph: %s: %w (%s)", b.step.Node.Name, err, b.step.Node.Source)
}
