package graph

import (
	"slices"

	"github.com/lethe-go/lethe/device"
)

// Part says that a Value holds some rows of a whole, counted over all dimensions of the whole
// but the last: of a parameter or of an activation that ranks share. The zero Part is the
// whole.
type Part struct {
	// Whole is the shape of the whole.
	Whole []int
	// First is the row of the whole that the Value begins with. Rows of the Value that lie
	// behind the end of the whole are padding.
	First int
}

// IsWhole reports whether nothing is missing.
func (p Part) IsWhole() bool { return p.Whole == nil }

// Rows of the whole.
func (p Part) Rows() int {
	n := 1
	for _, d := range p.Whole[:len(p.Whole)-1] {
		n *= d
	}
	return n
}

// Live is how many of the n rows of a Value are no padding.
func (p Part) Live(n int) int {
	if p.IsWhole() {
		return n
	}
	return max(0, min(n, p.Rows()-p.First))
}

// Device is the part as kernels know it.
func (p Part) Device() device.Part {
	if p.IsWhole() {
		return device.Part{}
	}
	return device.Part{First: p.First, Whole: p.Rows()}
}

// Part is the part of a whole that v holds.
func (v Value) Part() Part {
	if v.node == nil {
		return Part{}
	}
	return v.core.metaOf(v.node).part
}

// WithPart says what part of a whole v holds, and returns v. What is computed of it row by row
// in the forward pass holds the same part.
func (b *Builder) WithPart(v Value, p Part) Value {
	if v.core != nil && v.node != nil {
		v.core.metaOf(v.node).part = p
	}
	return v
}

// carries is the part that an output of an op has whose first input has the part p: the same
// one, if there is an output row for each input row.
func (p Part) carries(in, out device.Spec) Part {
	n := len(in.Shape) - 1
	if p.IsWhole() || n < 0 || len(out.Shape) != n+1 || !slices.Equal(out.Shape[:n], in.Shape[:n]) {
		return Part{}
	}
	whole := slices.Clone(p.Whole)
	whole[len(whole)-1] = out.Last()
	return Part{whole, p.First}
}
