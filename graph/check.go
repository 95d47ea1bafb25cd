package graph

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/lethe-go/lethe/device"
)

// CheckLevel says how closely the second run of a node is compared with its first.
type CheckLevel uint8

const (
	// CheckOff compares nothing.
	CheckOff CheckLevel = iota
	// CheckShape compares the dtypes and live shapes of all operands.
	CheckShape
	// CheckChecksum compares their contents too, by a 64-bit checksum (xxHash64) of the
	// live elements.
	CheckChecksum
	// CheckBitwise keeps a copy of every result on the host as well, so that a
	// difference is told with its place and both values.
	CheckBitwise
)

var checkNames = [...]string{"off", "shape", "checksum", "bitwise"}

func (l CheckLevel) String() string { return checkNames[l] }

// CheckNames are the levels as [ParseCheckLevel] reads them.
func CheckNames() []string { return slices.Clone(checkNames[:]) }

// ParseCheckLevel is the inverse of String.
func ParseCheckLevel(name string) (CheckLevel, error) {
	i := slices.Index(checkNames[:], name)
	if i < 0 {
		return CheckOff, fmt.Errorf("graph: unknown check %q: want one of %q", name, checkNames)
	}
	return CheckLevel(i), nil
}

// Check makes every later run compare each rerun with the node's first run, and stop with
// a *RerunError at the first that differs. It changes no result. What it keeps is host
// memory outside the arena, [Program.CheckBytes] of it, and it is allocated now: a warm
// run allocates nothing.
func (m *Machine) Check(l CheckLevel) error {
	m.dropOriginals()
	m.check = l
	if l == CheckOff {
		return nil
	}
	layout := m.program.checkLayout(l)
	var err error
	if m.checked, err = m.dev.Alloc(device.OnHost, max(layout.bytes, 1)); err != nil {
		return fmt.Errorf("graph: memory to check reruns: %w", err)
	}
	m.staging = device.NewTensor(m.checked, 0, device.Uint8, int(layout.staging))
	m.originals = map[*Node]*original{}
	for _, s := range layout.first {
		o := &original{in: make([]sighting, len(s.in)), out: make([]sighting, len(s.out))}
		for i := range s.out {
			if at, ok := layout.copies[Edge{s.Node, i}]; ok {
				spec := s.Node.Out[i]
				o.out[i].copy = device.NewTensor(m.checked, at, spec.DType, spec.Shape...)
			}
		}
		m.originals[s.Node] = o
	}
	for i := range m.steps {
		m.steps[i].original = m.originals[m.steps[i].step.Node]
	}
	return nil
}

// dropOriginals ends checking.
func (m *Machine) dropOriginals() {
	for i := range m.steps {
		m.steps[i].original = nil
	}
	m.originals, m.staging = nil, device.Tensor{}
	if m.checked != nil {
		m.checked.Free()
		m.checked = nil
	}
}

// CheckBytes is the host memory that a Machine needs to check at a level, beside what
// Memory says: with CheckBitwise a copy of each result that is rerun, at the bound of
// dynamic rows, and room for the largest operand that the host cannot read in place.
func (p *Program) CheckBytes(l CheckLevel) int64 {
	if l == CheckOff {
		return 0
	}
	return p.checkLayout(l).bytes
}

// checkLayout is where the memory of checks lies: staging first, copies behind it.
type checkLayout struct {
	first          []*Step // the first runs of nodes that run twice
	copies         map[Edge]int64
	staging, bytes int64
}

func (p *Program) checkLayout(l CheckLevel) checkLayout {
	c := checkLayout{copies: map[Edge]int64{}}
	again := map[*Node]*Step{}
	for _, s := range p.Steps {
		if s.Kind == Recompute {
			again[s.Node] = s
		}
	}
	for _, s := range p.Steps {
		if s.Kind == Run && again[s.Node] != nil {
			c.first = append(c.first, s)
		}
	}
	if l == CheckShape {
		return c
	}
	reachable := p.Graph.Store.dev.HostAccessible()
	for _, s := range c.first {
		for i, e := range s.Node.In {
			if !reachable || len(s.in[i].views) > 0 {
				c.staging = max(c.staging, e.Spec().Bytes())
			}
		}
		for i := range s.out {
			if !reachable && s.out[i] != nil {
				c.staging = max(c.staging, s.Node.Out[i].Bytes())
			}
		}
	}
	c.bytes = align(c.staging)
	if l != CheckBitwise {
		return c
	}
	for _, s := range c.first {
		for i, out := range s.out {
			if out != nil && again[s.Node].out[i] != nil {
				c.copies[Edge{s.Node, i}] = c.bytes
				c.bytes += align(s.Node.Out[i].Bytes())
			}
		}
	}
	return c
}

// original is what the first run of a node read and wrote.
type original struct{ in, out []sighting }

// sighting is what was seen of an operand.
type sighting struct {
	shape device.Tensor // its dtype and live shape; zero if it was left out
	known bool          // contents have been looked at: an asynchronous result may never be
	sum   uint64        // of its elements, from CheckChecksum on
	copy  device.Tensor // host memory, at the bound; zero below CheckBitwise
}

// checkInputs looks at what a step is about to read: it remembers the first run, and
// holds a rerun against it. Shapes of results are known before the run, too.
func (m *Machine) checkInputs(b *boundStep) error {
	o := b.original
	if o == nil {
		return nil
	}
	rerun := b.step.Kind == Recompute
	for i, t := range b.in {
		sum, err := m.sum(t)
		if err != nil {
			return err
		}
		if rerun && (!alike(o.in[i].shape, t) || sum != o.in[i].sum) {
			return m.inputChanged(b, i, sum)
		}
		o.in[i].shape, o.in[i].sum = t, sum
	}
	for i, t := range b.out {
		switch {
		case !rerun:
			o.out[i].shape, o.out[i].known = t, false
		case inBoth(o.out[i], t) && !alike(o.out[i].shape, t):
			return m.outputDiffers(b, i, 0)
		}
	}
	return nil
}

// checkOutputs looks at what a step has written.
func (m *Machine) checkOutputs(b *boundStep) error {
	o := b.original
	if o == nil || m.check == CheckShape {
		return nil
	}
	for i, t := range b.out {
		sum, err := m.sum(t)
		switch seen := &o.out[i]; {
		case err != nil:
			return err
		case b.step.Kind != Recompute:
			seen.sum, seen.known = sum, true
			if !seen.copy.IsZero() {
				err = m.keep(seen, t)
			}
		case inBoth(*seen, t) && seen.known:
			err = m.compare(b, i, sum)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inBoth reports whether both runs have the output: one that a run has no reader
// for may be left out of it.
func inBoth(seen sighting, t device.Tensor) bool { return !seen.shape.IsZero() && !t.IsZero() }

// keep copies the live elements of an output of a first run.
func (m *Machine) keep(seen *sighting, t device.Tensor) error {
	from, err := m.readable(t)
	if err != nil {
		return err
	}
	to := seen.copy
	if t.Rank() > 0 {
		to = to.WithRows(t.Dim(0))
	}
	copy(device.Raw(to), device.Raw(from))
	return nil
}

// compare holds output i of a rerun against the first run.
func (m *Machine) compare(b *boundStep, i int, sum uint64) error {
	seen := &b.original.out[i]
	if sum != seen.sum {
		return m.outputDiffers(b, i, sum)
	}
	if seen.copy.IsZero() {
		return nil
	}
	t, err := m.readable(b.out[i])
	if err != nil {
		return err
	}
	if was := device.Raw(seen.copy)[:t.Bytes()]; !bytes.Equal(was, device.Raw(t)) {
		return m.outputDiffers(b, i, sum)
	}
	return nil
}

// sum is the checksum of a tensor's elements, 0 if contents are not compared.
func (m *Machine) sum(t device.Tensor) (uint64, error) {
	if t.IsZero() || m.check == CheckShape {
		return 0, nil
	}
	t, err := m.readable(t)
	if err != nil {
		return 0, err
	}
	return xxhash.Sum64(device.Raw(t)), nil
}

// readable returns the elements of t, contiguous in host memory; those of the last call
// may be gone.
func (m *Machine) readable(t device.Tensor) (device.Tensor, error) {
	if t.Contiguous() && m.dev.HostAccessible() {
		return t, nil
	}
	host := t.In(m.staging.Buffer(), 0)
	m.queue.Copy(host, t)
	return host, m.queue.Sync()
}

func alike(a, b device.Tensor) bool {
	if a.DType() != b.DType() || a.Rank() != b.Rank() {
		return false
	}
	for i := range a.Rank() {
		if a.Dim(i) != b.Dim(i) {
			return false
		}
	}
	return true
}
