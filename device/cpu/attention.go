package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// attentionTile is how many keys a tile has: whole strips and panels of every
// micro-kernel (6×16, 12×32). The score tile and the tiles of keys and values stay in
// the second-level cache. Tiles start at multiples of it from the first key on, and
// decide the order of sums.
const attentionTile = 96

// attentionTasks are the argument blocks of the attention kernels.
type attentionTasks[T float] struct {
	forward  attentionForward[T]
	delta    attentionDelta[T]
	backward attentionBackward[T]
}

// Attention implements device.Kernels.
func (q *queue) Attention(out, lse, query, key, value device.Tensor, mask device.Mask, scale float64) {
	switch query.DType() {
	case device.Float32:
		q.f32.attentionTasks.forward.run(q, out, lse, query, key, value, mask, scale)
	case device.Float64:
		q.f64.attentionTasks.forward.run(q, out, lse, query, key, value, mask, scale)
	default:
		panic("cpu: attention wants float32 or float64")
	}
}

// headView is a [batch, rows, heads, width] tensor whose last stride is 1. The
// strides count elements.
type headView[T float] struct {
	base             unsafe.Pointer
	batch, row, head int
}

func viewHeads[T float](t device.Tensor) headView[T] {
	if t.Rank() != 4 || t.DType().Size() != int(unsafe.Sizeof(*new(T))) || t.Dim(3) > 1 && t.Stride(3) != 1 {
		panic("cpu: attention wants [batch, rows, heads, width] of one dtype with a last stride of 1")
	}
	v := headView[T]{batch: t.Stride(0), row: t.Stride(1), head: t.Stride(2)}
	if t.Len() > 0 {
		v.base = t.Pointer()
	}
	return v
}

// at is the address of one row of one head.
func (v headView[T]) at(batch, row, head int) unsafe.Pointer {
	return element[T](v.base, batch*v.batch+row*v.row+head*v.head)
}

// element is the address i elements behind p.
func element[T float](p unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(p, i*int(unsafe.Sizeof(*new(T))))
}

// attentionShape holds the extents that forward and backward share.
type attentionShape struct {
	batch, queries, keys int
	heads, keyHeads      int
	queryWidth, width    int // Dqk and Dv
}

func shapeOfAttention(query, key, value device.Tensor) attentionShape {
	s := attentionShape{
		batch: query.Dim(0), queries: query.Dim(1), keys: key.Dim(1),
		heads: query.Dim(2), keyHeads: key.Dim(2),
		queryWidth: query.Dim(3), width: value.Dim(3),
	}
	switch {
	case key.Dim(0) != s.batch || value.Dim(0) != s.batch || value.Dim(1) != s.keys ||
		value.Dim(2) != s.keyHeads || key.Dim(3) != s.queryWidth:
		panic("cpu: attention: shapes of query, key and value do not fit")
	case s.keyHeads == 0 && s.heads > 0 || s.keyHeads > 0 && s.heads%s.keyHeads != 0:
		panic("cpu: attention: query heads are no multiple of key heads")
	}
	return s
}

// check panics unless t is [batch, rows, heads, width].
func (s *attentionShape) check(t device.Tensor, rows, heads, width int) {
	if t.Dim(0) != s.batch || t.Dim(1) != rows || t.Dim(2) != heads || t.Dim(3) != width {
		panic("cpu: attention: shape of an output or gradient does not fit")
	}
}

func (s *attentionShape) keyTiles() int { return ceilDiv(s.keys, attentionTile) }

// statistics returns the elements of lse, or of another [batch, heads, queries].
func statistics[T float](s *attentionShape, t device.Tensor) []T {
	if t.Len() != s.batch*s.heads*s.queries {
		panic("cpu: attention: lse is not [batch, heads, queries]")
	}
	return elements[T](t)
}

// scratchLayout cuts a worker's scratch into aligned pieces.
type scratchLayout struct{ end int }

// take returns the byte offset of n elements.
func take[E any](l *scratchLayout, n int) int {
	at := l.end
	l.end += (n*int(unsafe.Sizeof(*new(E))) + device.Alignment - 1) &^ (device.Alignment - 1)
	return at
}

// scratch returns n elements at a byte offset of a worker's scratch.
func scratch[E any](q *queue, worker, at, n int) []E {
	return unsafe.Slice((*E)(unsafe.Add(q.scratch[worker].base, at)), n)
}

// scratchAt is a byte offset of a worker's scratch.
func scratchAt(q *queue, worker, at int) unsafe.Pointer {
	return unsafe.Add(q.scratch[worker].base, at)
}

// attentionFactor splits the scale of scores into what they are multiplied by first, 1
// if nothing, and the positive factor of the exponent.
func attentionFactor[T float](scale float64) (first, factor T) {
	if scale > 0 {
		return 1, T(scale)
	}
	return T(scale), 1
}
