package train

import (
	"iter"
	"slices"

	"github.com/lethe-go/lethe/device"
)

// part is what a process has of a tensor: the box that begins at start, with the Shape and
// the Data of Tensor, of a whole of the shape global.
type part struct {
	Tensor
	global, start []int
}

// whole is the part that is all of a tensor.
func whole(t Tensor) part { return part{t, t.Shape, make([]int, len(t.Shape))} }

// isWhole reports whether nothing is missing.
func (p part) isWhole() bool { return slices.Equal(p.Shape, p.global) }

// sameBox reports whether two parts of a tensor cover the same of it.
func (p part) sameBox(q part) bool {
	return slices.Equal(p.start, q.start) && slices.Equal(p.Shape, q.Shape)
}

// overlaps reports whether two parts have an element in common. Without dimensions there is
// one element.
func (p part) overlaps(q part) bool {
	for i := range p.start {
		if max(p.start[i], q.start[i]) >= min(p.start[i]+p.Shape[i], q.start[i]+q.Shape[i]) {
			return false
		}
	}
	return true
}

// fill copies what both have from q.
func (p part) fill(q part) {
	at := make([]int, len(p.Shape)) // in the whole
	p.fillFrom(q, at, 0)
}

// fillFrom copies the elements whose first coordinates are those of at. Runs of the last
// dimension are copied at once.
func (p part) fillFrom(q part, at []int, dimension int) {
	if dimension == len(at) {
		copy(p.Data, q.Data)
		return
	}
	lo := max(p.start[dimension], q.start[dimension])
	hi := min(p.start[dimension]+p.Shape[dimension], q.start[dimension]+q.Shape[dimension])
	if lo >= hi {
		return
	}
	if dimension == len(at)-1 || p.spans(q, dimension+1) {
		at[dimension] = lo
		for i := dimension + 1; i < len(at); i++ {
			at[i] = p.start[i]
		}
		n := hi - lo
		for _, d := range p.Shape[dimension+1:] {
			n *= d
		}
		bytes := n * p.DType.Size()
		copy(p.Data[p.offset(at):][:bytes], q.Data[q.offset(at):][:bytes])
		return
	}
	for at[dimension] = lo; at[dimension] < hi; at[dimension]++ {
		p.fillFrom(q, at, dimension+1)
	}
}

// spans reports whether both parts cover the same of all dimensions from the given one.
func (p part) spans(q part, dimension int) bool {
	return slices.Equal(p.start[dimension:], q.start[dimension:]) && slices.Equal(p.Shape[dimension:], q.Shape[dimension:])
}

// chunks divides a part into boxes without Data whose elements follow one another in its
// own, of at most so many bytes, but of at least one element.
func (p part) chunks(most int64) iter.Seq[part] {
	return func(yield func(part) bool) {
		if p.bytes() > 0 {
			p.chunksOf(most, 0, yield)
		}
	}
}

// chunksOf divides a part whose extents before a dimension are 1.
func (p part) chunksOf(most int64, dimension int, yield func(part) bool) bool {
	n := p.bytes()
	if n <= most || dimension == len(p.Shape) {
		p.Data = nil
		return yield(p)
	}
	step := max(1, int(most/(n/int64(p.Shape[dimension]))))
	for at := 0; at < p.Shape[dimension]; at += step {
		c := p
		c.start, c.Shape = slices.Clone(p.start), slices.Clone(p.Shape)
		c.start[dimension] += at
		c.Shape[dimension] = min(step, p.Shape[dimension]-at)
		next := dimension
		if c.Shape[dimension] == 1 {
			next++
		}
		if !c.chunksOf(most, next, yield) {
			return false
		}
	}
	return true
}

// offset of an element in Data, by its place in the whole.
func (p part) offset(at []int) int {
	n := 0
	for i, x := range at {
		n = n*p.Shape[i] + x - p.start[i]
	}
	return n * p.DType.Size()
}

// bytes of the part.
func (p part) bytes() int64 { return device.NewSpec(p.DType, p.Shape...).Bytes() }
