package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/device"
)

// Full returns a constant tensor filled with one value.
func (b *Builder) Full(value float64, d device.DType, shape ...int) Value {
	return b.Apply(full{value: value, spec: device.NewSpec(d, shape...)})
}

// full makes a tensor of equal elements.
type full struct {
	Pure
	value float64
	spec  device.Spec
}

func (full) Kind() string                                   { return "full" }
func (f full) Outputs([]device.Spec) ([]device.Spec, error) { return []device.Spec{f.spec}, nil }
func (f full) Cost([]device.Spec) Cost                      { return Traffic(0, nil, []device.Spec{f.spec}) }
func (f full) Run(x *Exec, out, _ []device.Tensor) error {
	x.Fill(out[0], f.value)
	return nil
}

// IsOne reports whether v is the constant scalar 1, which is what the gradient of
// a loss begins with.
func IsOne(v Value) bool {
	if v.node == nil {
		return false
	}
	a, ok := v.node.Op().(*applied)
	if !ok {
		return false
	}
	f, ok := a.op.(full)
	return ok && f.value == 1 && len(f.spec.Shape) == 0
}

// Add returns the elementwise sum of two values of equal shape and dtype.
func Add(a, b Value) Value { return At(a).Apply(add{}, a, b) }

type add struct{ Pure }

func (add) Kind() string { return "add" }
func (add) Outputs(in []device.Spec) ([]device.Spec, error) {
	return in[:1], sameShape("add", in)
}
func (add) Cost(in []device.Spec) Cost { return Traffic(float64(in[0].Len()), in, in[:1]) }
func (add) Run(x *Exec, out, in []device.Tensor) error {
	x.Binary(device.Add, out[0], in[0], in[1])
	return nil
}
func (add) Gradient(_ *Builder, _, _, grad []Value) []Value { return []Value{grad[0], grad[0]} }

// Reshape returns v's elements under another shape, as a view. The first extent
// may be -1: it is then what is left. Dynamic rows can only be reshaped behind
// the first extent.
func Reshape(v Value, shape ...int) Value { return At(v).Apply(reshape{shape: slices.Clone(shape)}, v) }

type reshape struct {
	Pure
	shape []int
}

func (reshape) Kind() string            { return "reshape" }
func (reshape) Cost([]device.Spec) Cost { return Cost{} }

func (r reshape) Outputs(in []device.Spec) ([]device.Spec, error) {
	shape := slices.Clone(r.shape)
	if len(shape) > 0 && shape[0] == -1 {
		shape[0] = 1
		if n := in[0].WithShape(shape...).Len(); n > 0 {
			shape[0] = in[0].Len() / n
		}
	}
	out := in[0].WithShape(shape...)
	if out.Len() != in[0].Len() {
		return nil, fmt.Errorf("%v has %d elements, %v has %d", in[0], in[0].Len(), r.shape, out.Len())
	}
	if in[0].Rows != 0 && (len(shape) == 0 || shape[0] != in[0].Shape[0]) {
		return nil, fmt.Errorf("%v to %v would move dynamic rows", in[0], r.shape)
	}
	return []device.Spec{out}, nil
}

func (r reshape) View(in device.Tensor) device.Tensor {
	shape := r.shape
	if len(shape) == 0 {
		return in.Reshape()
	}
	rest := 1
	for _, d := range shape[1:] {
		rest *= d
	}
	var dims [device.MaxRank]int
	copy(dims[:], shape)
	if rest > 0 {
		dims[0] = in.Len() / rest
	}
	return in.Reshape(dims[:len(shape)]...)
}

func (reshape) Run(*Exec, []device.Tensor, []device.Tensor) error { return nil }

func (reshape) Gradient(_ *Builder, in, _, grad []Value) []Value {
	return []Value{Reshape(grad[0], in[0].Shape()...)}
}

// Sum returns the scalar sum of all elements.
func Sum(v Value) Value { return At(v).Apply(sum{}, v) }

type sum struct{ Pure }

func (sum) Kind() string { return "sum" }
func (sum) Outputs(in []device.Spec) ([]device.Spec, error) {
	if !in[0].DType.IsFloat() {
		return nil, fmt.Errorf("want floats, have %v", in[0])
	}
	return []device.Spec{device.NewSpec(in[0].DType)}, nil
}
func (sum) Cost(in []device.Spec) Cost { return Traffic(float64(in[0].Len()), in, nil) }
func (sum) Run(x *Exec, out, in []device.Tensor) error {
	x.Sum(out[0].Reshape(1), in[0].Reshape(in[0].Len()))
	return nil
}
func (sum) Gradient(b *Builder, in, _, grad []Value) []Value {
	return []Value{b.Apply(expand{like: in[0].Spec()}, grad[0])}
}

// expand repeats a scalar over a shape.
type expand struct {
	Pure
	like device.Spec
}

func (expand) Kind() string { return "expand" }
func (e expand) Outputs([]device.Spec) ([]device.Spec, error) {
	return []device.Spec{e.like}, nil
}
func (e expand) Cost([]device.Spec) Cost { return Traffic(0, nil, []device.Spec{e.like}) }
func (e expand) Run(x *Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0].BroadcastTo(out[0]))
	return nil
}
func (expand) Gradient(_ *Builder, _, _, grad []Value) []Value { return []Value{Sum(grad[0])} }

// At returns a Builder in whose scope an op on v belongs: that of the gradient
// being built, that of the region being built if v comes from outside of it, or
// else v's own. Functions that take only Values apply their ops with it.
func At(v Value) *Builder {
	c := v.core
	if c == nil {
		return &Builder{core: &core{err: errAbsent}}
	}
	scope := ""
	if v.node != nil {
		scope = c.metaOf(v.node).scope
	}
	switch {
	case c.origin != nil:
		scope = c.metaOf(c.origin).scope
	case c.region != nil && !within(scope, c.region.Scope):
		scope = c.region.Scope
	}
	return &Builder{core: c, scope: scope}
}

var errAbsent = errors.New("graph: an absent Value (graph.None) was used")

// within reports whether a scope is outer or lies under it.
func within(scope, outer string) bool {
	return outer == "" || scope == outer || strings.HasPrefix(scope, outer+".")
}
