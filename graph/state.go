package graph

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/device"
)

// Update assigns v to a state once per step: after the last reader of the
// state, and only if every loss of the program is finite. Until then readers see
// the old value.
func (b *Builder) Update(state, v Value) {
	out := b.mutate(assign{}, state, v)
	if out.node != nil {
		b.core.metas[out.node.ID()].commit = true
	}
}

// Assign writes v to a state as soon as v is there and nothing reads the old
// value any more. Where it can, the compiler lets v be computed in place.
func (b *Builder) Assign(state, v Value) { b.mutate(assign{}, state, v) }

// Accumulate adds v to a state as soon as v is there.
func (b *Builder) Accumulate(state, v Value) { b.mutate(accumulate{}, state, v) }

func (b *Builder) mutate(op Op, state, v Value) Value {
	if w, bad := b.poisoned(op.Kind(), []Value{state, v}); bad {
		return w
	}
	if m := b.core.metas[state.node.ID()]; m == nil || m.binding == nil {
		return b.Fail("%s: %s is not a parameter or state", op.Kind(), state.Name())
	} else if m.binding.Kind == Fixed {
		return b.Fail("%s: %s is a constant", op.Kind(), state.Name())
	}
	return b.Apply(op, state, v)
}

// token is the output of an op that is run for its effect: nothing, but a node
// needs an output to exist.
var token = []device.Spec{device.NewSpec(device.Uint8, 0)}

// TokenOutput is the spec of the empty output of an op that is run for its
// effect alone.
func TokenOutput() []device.Spec { return slices.Clone(token) }

func sameShape(kind string, in []device.Spec) error {
	for _, s := range in[1:] {
		if !slices.Equal(s.Shape, in[0].Shape) || s.Rows != in[0].Rows {
			return fmt.Errorf("shapes differ: %v × %v", in[0], s)
		}
		if s.DType != in[0].DType {
			return fmt.Errorf("dtypes differ: %v × %v", in[0], s)
		}
	}
	return nil
}

// assign copies its second input to the first.
type assign struct{ Pure }

func (assign) Kind() string               { return "assign" }
func (assign) Mutates() []int             { return []int{0} }
func (assign) Cost(in []device.Spec) Cost { return Traffic(0, in[1:], in[:1]) }

func (assign) Outputs(in []device.Spec) ([]device.Spec, error) {
	return TokenOutput(), sameShape("assign", in)
}

func (assign) Run(x *Exec, _, in []device.Tensor) error {
	x.Copy(in[0], in[1])
	return nil
}

// accumulate adds its second input to the first.
type accumulate struct{ Pure }

func (accumulate) Kind() string   { return "accumulate" }
func (accumulate) Mutates() []int { return []int{0} }

func (accumulate) Cost(in []device.Spec) Cost {
	return Traffic(float64(in[0].Len()), in, in[:1])
}

func (accumulate) Outputs(in []device.Spec) ([]device.Spec, error) {
	return TokenOutput(), sameShape("accumulate", in)
}

func (accumulate) Run(x *Exec, _, in []device.Tensor) error {
	x.Binary(device.Add, in[0], in[0], in[1])
	return nil
}
