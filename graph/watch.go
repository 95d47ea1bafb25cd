package graph

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/device"
)

// ErrNonFinite is wrapped by the error of a run whose loss is NaN or infinite,
// or in which the NaN watch found something.
var ErrNonFinite = errors.New("not finite")

// NonFiniteError is what the NaN watch found: the first step of a run that made a number
// that is NaN or infinite. It wraps ErrNonFinite.
type NonFiniteError struct {
	Node *Node
	// Pass in which the node ran.
	Pass Pass
	// Output is the result that was found, Values what is in it.
	Output int
	Values Range
	// Inputs are what the step had read, in their order. One that the op overwrites is
	// as it was left.
	Inputs []Range
}

// Range tells what numbers are in a tensor.
type Range struct {
	Name string // of the node
	Spec device.Spec
	// Min and Max of the finite numbers; NaN if there are none.
	Min, Max float64
	// Total numbers, of which NonFinite are NaN or infinite.
	Total, NonFinite int
}

func (r Range) String() string {
	text := fmt.Sprintf("%s %v", r.Name, r.Spec)
	if r.NonFinite < r.Total {
		text += fmt.Sprintf(" in [%.4g, %.4g]", r.Min, r.Max)
	}
	if r.NonFinite > 0 {
		text += fmt.Sprintf(" with %d of %d not finite", r.NonFinite, r.Total)
	}
	return text
}

// shownInputs is how many inputs an error names.
const shownInputs = 6

func (e *NonFiniteError) Error() string {
	var inputs []string
	for _, r := range e.suspects() {
		inputs = append(inputs, r.String())
	}
	more := ""
	if n := len(e.Inputs) - len(inputs); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("graph: %s: output %d (%v) holds %d values of %d that are NaN or infinite: %v; it is a %s in %s (%s) of %s%s",
		e.Node.Name, e.Output, e.Values.Spec, e.Values.NonFinite, e.Values.Total, ErrNonFinite, e.Node.Kind, e.Pass, e.Node.Source, strings.Join(inputs, ", "), more)
}

// suspects are the inputs an error names: those that are not finite and the largest,
// in the order in which the node has them.
func (e *NonFiniteError) suspects() []Range {
	if len(e.Inputs) <= shownInputs {
		return e.Inputs
	}
	order := make([]int, len(e.Inputs))
	for i := range order {
		order[i] = i
	}
	size := func(r Range) float64 { return max(math.Abs(r.Min), math.Abs(r.Max)) }
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := e.Inputs[i], e.Inputs[j]
		return cmp.Or(cmp.Compare(min(b.NonFinite, 1), min(a.NonFinite, 1)), cmp.Compare(size(b), size(a)))
	})
	order = order[:shownInputs]
	slices.Sort(order)
	var list []Range
	for _, i := range order {
		list = append(list, e.Inputs[i])
	}
	return list
}

func (e *NonFiniteError) Unwrap() error { return ErrNonFinite }

// Watch makes every run look for NaN and infinities in the results of each
// step, and stop at the first that makes one with a *NonFiniteError. It changes no
// result and costs a pass over all of them.
func (m *Machine) Watch() error {
	if !m.watch.IsZero() {
		return nil
	}
	b, err := m.dev.Alloc(device.OnHost, 4)
	if err != nil {
		return err
	}
	m.watch = device.NewTensor(b, 0, device.Int32)
	return nil
}

// watchStep looks for NaN and infinities in what a step has written.
func (m *Machine) watchStep(b *boundStep) error {
	for i, t := range b.out {
		if t.IsZero() || t.Len() == 0 || t.DType() != device.Float32 && t.DType() != device.Float64 || !t.Contiguous() {
			continue
		}
		m.queue.Fill(m.watch, 0)
		m.queue.CountNonFinite(m.watch, t)
		if err := m.queue.Sync(); err != nil {
			return err
		}
		if device.Elements[int32](m.watch)[0] > 0 {
			return m.found(b, i)
		}
	}
	return nil
}

// found describes a step that made something that is not finite.
func (m *Machine) found(b *boundStep, output int) error {
	n := b.step.Node
	e := &NonFiniteError{Node: n, Pass: b.step.Pass(), Output: output}
	var err error
	if e.Values, err = m.rangeOf(n.Name, b.out[output]); err != nil {
		return err
	}
	for i, t := range b.in {
		r, err := m.rangeOf(n.In[i].Node.Name, t)
		if err != nil {
			return err
		}
		e.Inputs = append(e.Inputs, r)
	}
	return e
}

// rangeOf reads a tensor by way of host memory.
func (m *Machine) rangeOf(name string, t device.Tensor) (Range, error) {
	r := Range{Name: name, Min: math.NaN(), Max: math.NaN()}
	if t.IsZero() {
		return r, nil
	}
	r.Spec = specOfTensor(t)
	r.Total = t.Len()
	if r.Total == 0 {
		return r, nil
	}
	buffer, err := m.dev.Alloc(device.OnHost, r.Spec.Bytes())
	if err != nil {
		return r, err
	}
	defer buffer.Free()
	host := t.In(buffer, 0)
	m.queue.Copy(host, t)
	if err := m.queue.Sync(); err != nil {
		return r, err
	}
	switch t.DType() {
	case device.Float32:
		extend(&r, device.Elements[float32](host))
	case device.Float64:
		extend(&r, device.Elements[float64](host))
	case device.Int32:
		extend(&r, device.Elements[int32](host))
	default:
		r.Total = 0 // unknown
	}
	return r, nil
}

func extend[T device.Number](r *Range, list []T) {
	for _, x := range list {
		switch x := float64(x); {
		case math.IsNaN(x) || math.IsInf(x, 0):
			r.NonFinite++
		case math.IsNaN(r.Min):
			r.Min, r.Max = x, x
		default:
			r.Min, r.Max = min(r.Min, x), max(r.Max, x)
		}
	}
}
