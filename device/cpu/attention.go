package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// A score tile is queryTile × keyTile: it stays in the second-level cache
// together with the tiles of queries, keys and values it is made from, and is
// whole tiles of every vector micro-kernel (6×16, 12×32). The grid decides the
// order of sums, so it depends on nothing but these constants.
const (
	queryTile = 96
	keyTile   = 96
)

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

func (s *attentionShape) queryTiles() int { return (s.queries + queryTile - 1) / queryTile }
func (s *attentionShape) keyTiles() int   { return (s.keys + keyTile - 1) / keyTile }

// statistics returns the elements of lse, or of another [batch, heads, queries].
func statistics[T float](s *attentionShape, t device.Tensor) []T {
	if t.Len() != s.batch*s.heads*s.queries {
		panic("cpu: attention: lse is not [batch, heads, queries]")
	}
	return elements[T](t)
}

// attentionForward computes one tile of queries of one head an iteration:
// FlashAttention-2, algorithm 1, whose outer loop is parallel and whose inner
// loop over tiles of keys keeps, for every query, the running maximum of its
// scores, the sum of their exponentials and the unnormalized output.
type attentionForward[T float] struct {
	q *queue
	attentionShape
	mask                    queryMask
	out, query, key, value  headView[T]
	lse                     []T
	scale                   T
	scoresAt, outAt, rowsAt int // byte offsets into a worker's scratch
	queryAt                 int
}

func (t *attentionForward[T]) run(q *queue, out, lse, query, key, value device.Tensor, mask device.Mask, scale float64) {
	t.q, t.scale = q, T(scale)
	t.query, t.key, t.value, t.out = viewHeads[T](query), viewHeads[T](key), viewHeads[T](value), viewHeads[T](out)
	t.attentionShape = shapeOfAttention(query, key, value)
	t.check(out, t.queries, t.heads, t.width)
	t.lse = statistics[T](&t.attentionShape, lse)

	l := scratchLayout{end: gemmScratch}
	t.scoresAt = take[T](&l, queryTile*keyTile)
	t.outAt = take[T](&l, queryTile*t.width)
	t.rowsAt = take[T](&l, 2*queryTile)
	t.queryAt = take[T](&l, queryTile*t.queryWidth)
	spansAt := take[querySpan](&l, spansOf(mask, t.batch, t.queries))
	q.reserve(int64(l.end))
	t.mask.resolve(mask, t.batch, t.queries, t.keys, scratch[querySpan](q, 0, spansAt, spansOf(mask, t.batch, t.queries)))

	q.run(t.queryTiles()*t.batch*t.heads, t)
	*t = attentionForward[T]{}
}

// do takes the last tiles first: behind a causal mask they see the most keys,
// and the short ones at the end level out what workers have left.
func (t *attentionForward[T]) do(worker, i int) {
	perTile := t.batch * t.heads
	tile := t.queryTiles() - 1 - i/perTile
	batch, head := i%perTile/t.heads, i%t.heads
	first := tile * queryTile
	last := min(first+queryTile, t.queries)
	n := last - first

	w := forwardScratch[T]{
		gemm:   scratch[byte](t.q, worker, 0, gemmScratch),
		scores: scratch[T](t.q, worker, t.scoresAt, queryTile*keyTile),
		query:  scratch[T](t.q, worker, t.queryAt, n*t.queryWidth),
		out:    scratch[T](t.q, worker, t.outAt, n*t.width),
		max:    scratch[T](t.q, worker, t.rowsAt, 2*queryTile)[:n],
		sum:    scratch[T](t.q, worker, t.rowsAt, 2*queryTile)[queryTile : queryTile+n],
	}
	clear(w.out)
	clear(w.sum)
	for r := range n {
		w.max[r] = T(math.Inf(-1))
		row := unsafe.Slice((*T)(t.query.at(batch, first+r, head)), t.queryWidth)
		scaled(w.query[r*t.queryWidth:(r+1)*t.queryWidth], row, t.scale)
	}

	seen := t.mask.clip(batch, first, last, 0, t.keys)
	for k := seen.key / keyTile * keyTile; k < seen.keyEnd; k += keyTile {
		if c := t.mask.clip(batch, first, last, k, k+keyTile); !c.empty() {
			t.tile(&w, batch, head, first, c)
		}
	}
	t.finish(&w, batch, head, first)
}

// forwardScratch is what a worker holds while it computes one tile of queries.
type forwardScratch[T float] struct {
	gemm     []byte
	scores   []T // [queryTile, keyTile]
	query    []T // [n, Dqk], times scale
	out      []T // [n, Dv], to be divided by sum
	max, sum []T // of each query's exponentials so far
}

// tile adds the keys of one tile to the queries that see them.
func (t *attentionForward[T]) tile(w *forwardScratch[T], batch, head, first int, c tileClip) {
	level, gemm := t.q.dev.level, unsafe.Pointer(&w.gemm[0])
	keyHead := head / (t.heads / t.keyHeads)
	scores, row := unsafe.Pointer(&w.scores[0]), c.query-first
	queries, keys := c.queryEnd-c.query, c.keyEnd-c.key

	gemmTile[T](level, queries, keys, t.queryWidth,
		unsafe.Pointer(unsafe.SliceData(w.query[row*t.queryWidth:])), t.queryWidth, 1,
		t.key.at(batch, c.key, keyHead), 1, t.key.row,
		scores, keyTile, false, gemm)

	spans := t.mask.rows(batch, c.query, c.queryEnd)
	for r := range queries {
		s := w.scores[r*keyTile:][:keys]
		lo, hi := spans[r].within(c.key, c.keyEnd)
		clear(s[:lo])
		clear(s[hi:])
		if lo < hi {
			t.online(w, row+r, s[lo:hi])
		}
	}

	gemmTile[T](level, queries, t.width, keys,
		scores, keyTile, 1,
		t.value.at(batch, c.key, keyHead), t.value.row, 1,
		unsafe.Pointer(unsafe.SliceData(w.out[row*t.width:])), t.width, true, gemm)
}

// online turns one query's scores into exponentials relative to its running
// maximum, and rescales what was summed under an older maximum.
func (t *attentionForward[T]) online(w *forwardScratch[T], row int, scores []T) {
	before := w.max[row]
	now := max(before, scoreMaximum(t.q.dev.level, scores))
	sum := scoreExp(t.q.dev.level, scores, 1, -now)
	if now != before {
		w.max[row] = now
	}
	if now != before && w.sum[row] != 0 {
		shrink := T(math.Exp(float64(before - now)))
		w.sum[row] *= shrink
		o := w.out[row*t.width : (row+1)*t.width]
		scaled(o, o, shrink)
	}
	w.sum[row] += sum
}

// finish divides by the sums and writes out and lse.
func (t *attentionForward[T]) finish(w *forwardScratch[T], batch, head, first int) {
	lse := t.lse[(batch*t.heads+head)*t.queries+first:]
	for r := range w.sum {
		out := unsafe.Slice((*T)(t.out.at(batch, first+r, head)), t.width)
		if spans := t.mask.rows(batch, first+r, first+r+1); spans[0].lo >= spans[0].hi {
			clear(out)
			lse[r] = T(math.Inf(-1))
			continue
		}
		lse[r] = T(float64(w.max[r]) + math.Log(float64(w.sum[r])))
		scaled(out, w.out[r*t.width:(r+1)*t.width], 1/w.sum[r])
	}
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
