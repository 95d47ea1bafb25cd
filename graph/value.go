package graph

import (
	"github.com/lethe-go/lethe/device"
	"gorgonia.org/gorgonia"
)

// Value is a handle on one result in a graph. It is small and copied freely.
// After the first error of its Builder a Value may be poisoned: all methods
// still work, and building with it does nothing.
type Value struct {
	core *core
	node *gorgonia.Node
}

// None is the absent Value.
var None Value

// IsNone reports whether v is absent, which is not the same as poisoned.
func (v Value) IsNone() bool { return v.core == nil }

// Node returns the Gorgonia node, or nil if v is None or poisoned.
func (v Value) Node() *gorgonia.Node { return v.node }

// Spec of the value; the zero Spec if v is None or poisoned.
func (v Value) Spec() device.Spec {
	if v.node == nil {
		return device.Spec{}
	}
	return v.core.spec(v.node)
}

// Shape is Spec().Shape.
func (v Value) Shape() []int { return v.Spec().Shape }

// Dim is the extent of dimension i, counted from the end if negative; 0 if there
// is no such dimension.
func (v Value) Dim(i int) int {
	s := v.Shape()
	if i < 0 {
		i += len(s)
	}
	if i < 0 || i >= len(s) {
		return 0
	}
	return s[i]
}

// Name is the fully qualified name, such as "layers.0.attention.matmul:1".
func (v Value) Name() string {
	if v.node == nil {
		return "poisoned"
	}
	return v.core.describe(v.node)
}

// Err is the first error of v's Builder, or nil.
func (v Value) Err() error {
	if v.core == nil {
		return nil
	}
	return v.core.err
}
