package graph

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/lethe-go/lethe/device"
)

// ErrRerun is wrapped by the error of a run in which a rerun was not its first run again.
var ErrRerun = errors.New("a rerun differs from the first run")

// RerunError is what a check found: the first rerun that read what the first run had read
// and wrote something else. It wraps ErrRerun.
type RerunError struct {
	Node *Node
	// Input is whether the rerun already read something else, though every rerun before
	// it was right: memory was overwritten between the runs.
	Input bool
	// Index of the output, or input, that differs, and what it was in both runs.
	Index        int
	First, Again Operand
	// Element is the place of the first element that differs, Values what stood there in
	// both runs, and Differing how many do; nil, none and 0 where no copy was kept.
	Element   []int
	Values    [2]string
	Differing int
	// Inputs of the rerun, in their order.
	Inputs []Operand
}

// Operand describes what a step reads or writes.
type Operand struct {
	Name string // of the node that made it
	Spec device.Spec
	// Checksum (xxHash64) of the elements, 0 where contents are not compared.
	Checksum uint64
}

func (o Operand) String() string {
	if o.Checksum == 0 {
		return fmt.Sprintf("%s %v", o.Name, o.Spec)
	}
	return fmt.Sprintf("%s %v checksum %016x", o.Name, o.Spec, o.Checksum)
}

func (e *RerunError) Error() string {
	n := e.Node
	place := fmt.Sprintf("%s of %q in %s", n.Kind, n.Scope, n.Source)
	if e.Input {
		return fmt.Sprintf("graph: %s: %v: it reads %v where the first run read %v, and no rerun before it differs: that memory was overwritten in between (%s)",
			n.Name, ErrRerun, e.Again, e.First, place)
	}
	what := fmt.Sprintf("%v, then %v", e.First, e.Again)
	if e.Element != nil {
		what = fmt.Sprintf("%v at %v: %s, then %s; %d of %d elements differ", e.First.Spec, e.Element, e.Values[0], e.Values[1], e.Differing, e.First.Spec.Len())
	}
	return fmt.Sprintf("graph: %s: %v: output %d, %s; its inputs were the same: %s (%s); an op may not remember anything between runs: mend it, or save its results",
		n.Name, ErrRerun, e.Index, what, e.inputs(), place)
}

func (e *RerunError) inputs() string {
	if len(e.Inputs) == 0 {
		return "it has none"
	}
	var list []string
	for _, in := range e.Inputs[:min(len(e.Inputs), shownInputs)] {
		list = append(list, in.String())
	}
	if more := len(e.Inputs) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

func (e *RerunError) Unwrap() error { return ErrRerun }

// inputChanged describes a rerun whose input i has another shape or sum.
func (m *Machine) inputChanged(b *boundStep, i int, sum uint64) error {
	name, seen := b.step.Node.In[i].Node.Name, b.original.in[i]
	return &RerunError{Node: b.step.Node, Input: true, Index: i,
		First: Operand{name, specOfTensor(seen.shape), seen.sum}, Again: Operand{name, specOfTensor(b.in[i]), sum}}
}

// outputDiffers describes a rerun whose output i has another shape, or sum or bytes.
func (m *Machine) outputDiffers(b *boundStep, i int, sum uint64) error {
	n, seen := b.step.Node, b.original.out[i]
	e := &RerunError{Node: n, Index: i,
		First: Operand{n.Name, specOfTensor(seen.shape), seen.sum}, Again: Operand{n.Name, specOfTensor(b.out[i]), sum}}
	for j, t := range b.in {
		e.Inputs = append(e.Inputs, Operand{n.In[j].Node.Name, specOfTensor(t), b.original.in[j].sum})
	}
	if seen.copy.IsZero() || !alike(seen.shape, b.out[i]) {
		return e
	}
	now, err := m.readable(b.out[i])
	if err != nil {
		return err
	}
	e.locate(seen.copy, now)
	return e
}

// locate finds the first element of now that is not that of was, which may have more rows.
func (e *RerunError) locate(was, now device.Tensor) {
	size := now.DType().Size()
	before, after := device.Raw(was), device.Raw(now)
	for i := range now.Len() {
		if string(before[i*size:(i+1)*size]) == string(after[i*size:(i+1)*size]) {
			continue
		}
		if e.Differing == 0 {
			e.Element = coordinates(i, now)
			e.Values = [2]string{element(was, i), element(now, i)}
		}
		e.Differing++
	}
}

// coordinates of element i of a contiguous tensor.
func coordinates(i int, t device.Tensor) []int {
	at := make([]int, t.Rank())
	for d := t.Rank() - 1; d >= 0; d-- {
		at[d] = i % t.Dim(d)
		i /= t.Dim(d)
	}
	return at
}

// element i of a contiguous tensor, so that different bits give different texts.
func element(t device.Tensor, i int) string {
	switch t.DType() {
	case device.Float32:
		v := device.Elements[float32](t)[i]
		if v != v {
			return fmt.Sprintf("NaN (%#x)", math.Float32bits(v))
		}
		return fmt.Sprint(v)
	case device.Float64:
		v := device.Elements[float64](t)[i]
		if v != v {
			return fmt.Sprintf("NaN (%#x)", math.Float64bits(v))
		}
		return fmt.Sprint(v)
	case device.Int32:
		return fmt.Sprint(device.Elements[int32](t)[i])
	case device.Int64:
		return fmt.Sprint(device.Elements[int64](t)[i])
	case device.Uint8:
		return fmt.Sprint(device.Elements[uint8](t)[i])
	default: // 16-bit floats, as bits
		return fmt.Sprintf("%#04x", device.Elements[uint16](t)[i])
	}
}

// specOfTensor describes the live tensor.
func specOfTensor(t device.Tensor) device.Spec {
	if t.IsZero() {
		return device.Spec{}
	}
	return device.Spec{DType: t.DType(), Shape: t.Shape()}
}
