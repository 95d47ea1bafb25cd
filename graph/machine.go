package graph

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/lethe-go/lethe/device"
)

// Machine runs a Program. It allocates when it is made; a warm run of Lethe ops
// allocates nothing on the Go heap. A Machine is used by one goroutine at a
// time, and Machines over one Store run one at a time.
type Machine struct {
	program *Program
	store   *Store
	dev     device.Device
	queue   device.Queue
	lanes   map[Lane]*lane

	arena    device.Buffer
	host     map[*Storage]device.Buffer // results that live on the host
	steps    []boundStep
	inputs   []*boundInput
	outputs  []*boundOutput
	losses   []*boundOutput
	counts   []atomic.Int64 // live rows, by device.Rows
	position position

	tracer   Tracer
	counters Counters
	label    device.Labeler // the queue, if it can tell steps apart
	watch    device.Tensor  // counter of the NaN watch, or the zero Tensor

	check     CheckLevel
	checked   device.Buffer       // host memory of the checks, or nil
	staging   device.Tensor       // bytes in it, for what the host cannot read where it is
	originals map[*Node]*original // by node that runs twice, nil without checks
}

// RunOptions identify a run.
type RunOptions struct {
	// Step is the optimizer step, counted from 1; Microbatch counts from 0. They
	// key random draws.
	Step, Microbatch int
}

// NewMachine allocates what p needs and the Store does not have yet.
func NewMachine(p *Program) (*Machine, error) {
	store := p.Graph.Store
	if err := store.Allocate(); err != nil {
		return nil, err
	}
	m := &Machine{program: p, store: store, dev: store.dev, queue: store.dev.NewQueue(), lanes: map[Lane]*lane{}, host: map[*Storage]device.Buffer{},
		counts: make([]atomic.Int64, len(p.Graph.rows))}
	m.label, _ = m.queue.(device.Labeler)
	for i, r := range p.Graph.rows {
		m.counts[i].Store(int64(r.bound))
	}
	if err := store.reserveArena(p.ArenaBytes); err != nil {
		m.Close()
		return nil, err
	}
	if err := store.reserveSpill(p.SpillBytes); err != nil {
		m.Close()
		return nil, err
	}
	if err := m.bind(); err != nil {
		m.Close()
		return nil, err
	}
	m.openLanes()
	return m, nil
}

// Close stops the Machine's lanes and frees what is not the Store's.
func (m *Machine) Close() error {
	for _, l := range m.lanes {
		l.close()
	}
	for _, in := range m.inputs {
		in.staging.Buffer().Free()
	}
	for _, out := range m.outputs {
		out.staging.Buffer().Free()
	}
	for _, b := range m.host {
		b.Free()
	}
	if !m.watch.IsZero() {
		m.watch.Buffer().Free()
	}
	m.dropOriginals()
	return m.queue.Close()
}

// Program that the Machine runs.
func (m *Machine) Program() *Program { return m.program }

// Trace makes the Machine tell t of every step; nil turns it off. A tracer sees
// and times steps and cannot change results.
func (m *Machine) Trace(t Tracer) { m.tracer = t }

// Input returns the host memory that feeds an input; fill it before each Run.
// For an input with dynamic rows use [Machine.SetRows] as well. It is the zero
// Tensor if the program has no such input.
func (m *Machine) Input(name string) device.Tensor {
	for _, in := range m.inputs {
		if in.node.Name == name {
			return in.staging
		}
	}
	return device.Tensor{}
}

// SetRows sets a live row count, at most its bound, for the next runs.
func (m *Machine) SetRows(rows device.Rows, n int) error {
	if rows <= 0 || int(rows) >= len(m.counts) {
		return fmt.Errorf("graph: no row count %d in this program", rows)
	}
	if r := m.program.Graph.rows[rows]; n < 0 || n > r.bound {
		return fmt.Errorf("graph: rows %q: %d is outside [0, %d]", r.name, n, r.bound)
	}
	m.counts[rows].Store(int64(n))
	return nil
}

func (m *Machine) liveRows(rows device.Rows) int { return int(m.counts[rows].Load()) }

// Counts returns the live row counts of the last run, or of the one that is on, as far as
// they are known. It may be called at any time, on any goroutine.
func (m *Machine) Counts() Counts {
	c := Counts{}
	for i := 1; i < len(m.counts); i++ {
		c[device.Rows(i)] = m.liveRows(device.Rows(i))
	}
	return c
}

// Feed copies values into an input, checking their number.
func Feed[T device.Number](m *Machine, name string, values []T) error {
	t := m.Input(name)
	if t.IsZero() {
		return fmt.Errorf("graph: the program has no input %q", name)
	}
	if t.Len() != len(values) {
		return fmt.Errorf("graph: input %q takes %d values, not %d", name, t.Len(), len(values))
	}
	copy(device.Elements[T](t), values)
	return nil
}

// Output returns the host copy of an output, valid until the next Run. It is the
// zero Tensor if the program has no such output.
func (m *Machine) Output(name string) device.Tensor {
	for _, out := range m.outputs {
		if out.name == name {
			return out.staging
		}
	}
	return device.Tensor{}
}

// Scalar returns a scalar float output as float64, NaN if there is none.
func (m *Machine) Scalar(name string) float64 {
	t := m.Output(name)
	switch {
	case t.IsZero() || t.Len() != 1:
	case t.DType() == device.Float32:
		return float64(device.Elements[float32](t)[0])
	case t.DType() == device.Float64:
		return device.Elements[float64](t)[0]
	}
	return math.NaN()
}

// Run executes the program once. When the context ends it stops between two
// steps and returns the context's error. A loss that is not finite is an error
// that wraps ErrNonFinite; updates are then not made.
func (m *Machine) Run(ctx context.Context, o RunOptions) error {
	if m.arena != m.store.arena {
		if err := m.bind(); err != nil {
			return err
		}
	}
	if err := m.store.claimScratch(m.program); err != nil {
		return err
	}
	m.position.enter(o.Step)
	defer m.position.leave()
	err := m.run(ctx, o)
	if err != nil {
		m.drain()
		m.queue.Sync() // forget what the failed run left behind
	}
	if m.tracer != nil {
		m.tracer.End(err)
	}
	return err
}

func (m *Machine) run(ctx context.Context, o RunOptions) error {
	m.event(0)
	for _, in := range m.inputs {
		if !in.device.IsZero() {
			m.queue.Copy(in.live(m), in.host(m))
		}
	}
	for i := range m.steps {
		if i == m.program.commit {
			if err := m.commit(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		if err := m.step(ctx, &m.steps[i], o); err != nil {
			return err
		}
	}
	m.event(len(m.steps) + 1)
	if m.program.commit == len(m.steps) {
		if err := m.commit(); err != nil {
			return err
		}
	}
	for _, out := range m.outputs {
		m.queue.Copy(out.host(m), out.source.tensor(m))
	}
	return m.queue.Sync()
}

// step runs one step, or hands it to its lane.
func (m *Machine) step(ctx context.Context, b *boundStep, o RunOptions) error {
	b.exec.Context, b.exec.Step, b.exec.Microbatch = ctx, uint32(o.Step), uint32(o.Microbatch)
	m.event(b.step.Index)
	if b.step.Kind == Wait {
		return m.wait(ctx, b.step.waits)
	}
	if err := b.prepare(m); err != nil {
		return err
	}
	if err := m.checkInputs(b); err != nil {
		return err
	}
	switch b.step.Kind {
	case CopyOut:
		m.counters.CopiedOut += b.in[0].Bytes()
	case CopyBack:
		m.counters.CopiedBack += b.out[b.step.copied().Out].Bytes()
	}
	if b.step.Lane != Compute {
		m.lanes[b.step.Lane].enqueue(b)
		return nil
	}
	if err := m.compute(b); err != nil {
		return err
	}
	if err := m.checkOutputs(b); err != nil {
		return err
	}
	if !m.watch.IsZero() {
		return m.watchStep(b)
	}
	return nil
}

// wait waits for a step of another lane.
func (m *Machine) wait(ctx context.Context, s *Step) error {
	begin := time.Now()
	b := &m.steps[s.Index-1]
	err := m.lanes[s.Lane].wait(ctx, b)
	m.expose(s, begin)
	if m.tracer != nil {
		m.tracer.Waited(s)
	}
	if err != nil {
		return m.copyFailed(s, err)
	}
	return m.checkOutputs(b)
}

// copyFailed names the value that could not be offloaded or reloaded. A Spill may tell of a
// failure when it is asked for another value.
func (m *Machine) copyFailed(s *Step, err error) error {
	if s.Computes() {
		return err
	}
	var e *device.SpillError
	n := s.Node
	if errors.As(err, &e) {
		for _, t := range m.program.Steps {
			if t.Kind == CopyOut && t.spill <= e.Offset && e.Offset < t.spill+t.in[0].storage.bytes {
				n = t.Node
			}
		}
	}
	return fmt.Errorf("graph: %s: %v: %w (%s)", n.Name, s.Kind, err, n.Source)
}

// compute runs a step on the compute lane.
func (m *Machine) compute(b *boundStep) error {
	n := b.step.Node
	if n.Effects.Has(HostSync) {
		m.counters.HostSyncs[b.step.Pass()]++
	}
	if n.Effects.Has(Collective) {
		defer m.expose(b.step, time.Now())
	}
	return b.run(m.queue, m.dev.HostAccessible())
}

// commit ends what does not depend on losses: whatever they are, scratch is written.
func (m *Machine) commit() error {
	m.store.keepScratch(m.program)
	return m.checkLosses()
}

// checkLosses reads the losses and refuses what is not finite.
func (m *Machine) checkLosses() error {
	for _, l := range m.losses {
		m.queue.Copy(l.host(m), l.source.tensor(m))
	}
	if err := m.queue.Sync(); err != nil {
		return err
	}
	for _, l := range m.losses {
		if v := m.Scalar(l.name); math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("graph: loss %q is %v: %w", l.name, v, ErrNonFinite)
		}
	}
	return nil
}

func (m *Machine) event(index int) {
	m.position.at(index)
	if m.tracer == nil {
		return
	}
	var s *Step
	if index > 0 && index <= len(m.steps) {
		s = m.steps[index-1].step
	}
	m.labelKernels(m.label, s)
	m.tracer.Begin(index, s)
}

// labelKernels says whose kernels a recorded device is given.
func (m *Machine) labelKernels(l device.Labeler, s *Step) {
	switch {
	case l == nil:
	case s == nil:
		l.Label(nil)
	default:
		l.Label(s)
	}
}
