package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) Sum(dst, src device.Tensor) {
	same(dst, src)
	if isFloat32(dst) {
		sum[float32](q, dst, src)
	} else {
		sum[float64](q, dst, src)
	}
}

// sumTask reduces in one of two ways. If the innermost dimension is summed over,
// an iteration of kept is one output, summed row by row; else an iteration is a
// column, and rows are added up into accumulators. Where there are few outputs,
// the reduced space is cut into parts, whose sums are added in order by
// sumParts.
type sumTask[T float] struct {
	level   level
	kept    loop // dst, src
	reduced loop // src
	columns bool

	dst, src   unsafe.Pointer
	parts      int
	partials   []float64 // [parts, keptChunks, perChunk], or none for one part
	partStride int
	perChunk   int // outputs at most
}

const (
	columnsPerChunk = 256
	rowsPerChunk    = 64
	// enoughTasks is the number of chunks of outputs that need no parts.
	enoughTasks = 16
	maxParts    = 64
)

func sum[T float](q *queue, dst, src device.Tensor) {
	if src.Len() == 0 {
		q.Fill(dst, 0)
		return
	}
	kept, reduced := src, src
	for d := range src.Rank() {
		switch {
		case dst.Dim(d) == src.Dim(d):
			reduced = reduced.Slice(d, 0, 1)
		case dst.Dim(d) == 1:
			kept = kept.Slice(d, 0, 1)
		default:
			panic("cpu: sum into an extent neither equal nor 1")
		}
	}
	t := &blocks[T](q).sum
	t.level = q.dev.level
	t.dst, t.src = dst.Pointer(), src.Pointer()
	t.reduced.overElements(grain, reduced)
	t.kept.overElements(max(1, grain/reduced.Len()), dst, kept)
	t.columns = t.kept.inner > 1 && (t.reduced.inner == 1 || t.kept.step(1) < t.reduced.step(0))
	if t.columns {
		t.kept.cut(columnsPerChunk)
		t.reduced.cut(rowsPerChunk)
	}
	t.perChunk = t.kept.segment * t.kept.block
	t.split(q)
	q.run(t.parts*t.kept.chunks(), t)
	if t.parts > 1 {
		q.run(t.kept.chunks(), (*sumParts[T])(t))
	}
}

func (t *sumTask[T]) split(q *queue) {
	t.parts, t.partials = 1, nil
	if n := t.reduced.chunks(); n > 1 && t.kept.chunks() < enoughTasks {
		t.parts = min(n, maxParts)
		t.partStride = t.kept.chunks() * t.perChunk
		t.partials = q.reservePartials(t.parts * t.partStride)
	}
}

func (t *sumTask[T]) do(_, i int) {
	chunk, part := i%t.kept.chunks(), i/t.kept.chunks()
	n := t.reduced.chunks()
	lo, hi := n*part/t.parts, n*(part+1)/t.parts
	at := part*t.partStride + chunk*t.perChunk
	for c := t.kept.chunk(chunk); c.next(); at += c.n {
		if t.columns {
			t.sumColumns(&c, lo, hi, at)
		} else {
			t.sumRows(&c, lo, hi, at)
		}
	}
}

// sumRows sums the chunks [lo, hi) of the reduced space for each output of c.
func (t *sumTask[T]) sumRows(c *cursor, lo, hi, at int) {
	var staging [stagingLen]T
	for j := range c.n {
		src := unsafe.Pointer(item[T](t.src, c.at[1]+j*t.kept.step(1)))
		s := 0.0
		for chunk := lo; chunk < hi; chunk++ {
			if t.reduced.dense() {
				for r := t.reduced.chunk(chunk); r.next(); {
					s += sumRow(t.level, slice[T](src, r.at[0], r.n))
				}
				continue
			}
			for r := t.reduced.pieces(chunk, stagingLen); r.next(); {
				s += sumRow(t.level, gather(&staging, src, r.at[0], t.reduced.step(0), r.n))
			}
		}
		if t.partials != nil {
			t.partials[at+j] = s
		} else {
			*item[T](t.dst, c.at[0]+j*t.kept.step(0)) = T(s)
		}
	}
}

// sumColumns adds up the rows in the chunks [lo, hi) of the reduced space.
func (t *sumTask[T]) sumColumns(c *cursor, lo, hi, at int) {
	var staging [stagingLen]T
	var accumulators [columnsPerChunk]float64
	sums := accumulators[:c.n]
	for chunk := lo; chunk < hi; chunk++ {
		for r := t.reduced.chunk(chunk); r.next(); {
			for j := range r.n {
				addColumnsRow(t.level, sums, gather(&staging, t.src, c.at[1]+r.at[0]+j*t.reduced.step(0), t.kept.step(1), c.n))
			}
		}
	}
	if t.partials != nil {
		copy(t.partials[at:], sums)
		return
	}
	for k, s := range sums {
		*item[T](t.dst, c.at[0]+k*t.kept.step(0)) = T(s)
	}
}

// sumParts adds the parts of each output, in order.
type sumParts[T float] sumTask[T]

func (t *sumParts[T]) do(_, chunk int) {
	at := chunk * t.perChunk
	for c := t.kept.chunk(chunk); c.next(); at += c.n {
		for j := range c.n {
			s := 0.0
			for part := range t.parts {
				s += t.partials[part*t.partStride+at+j]
			}
			*item[T](t.dst, c.at[0]+j*t.kept.step(0)) = T(s)
		}
	}
}

// sumLanes is the number of running sums of a row: element i goes to lane i mod 16,
// which hides the latency of the additions and fills the registers of every level.
const sumLanes = 16

// foldLanes adds up the lanes in the order that vector kernels do.
func foldLanes[T float](s *[sumLanes]T) T {
	for half := sumLanes / 2; half > 0; half /= 2 {
		for k := range half {
			s[k] += s[k+half]
		}
	}
	return s[0]
}

// sumRow is Σ x in float64.
func sumRow[T float](l level, x []T) float64 {
	if vectorized[T](l) {
		return sumVector(l, asFloat32(x))
	}
	var s [sumLanes]float64
	for ; len(x) >= sumLanes; x = x[sumLanes:] {
		for k, v := range (*[sumLanes]T)(x) {
			s[k] += float64(v)
		}
	}
	for k, v := range x {
		s[k] += float64(v)
	}
	return foldLanes(&s)
}

// dotRow is Σ a·b in float64, where products of float32 are exact.
func dotRow[T float](l level, a, b []T) float64 {
	if vectorized[T](l) {
		return dotVector(l, asFloat32(a), asFloat32(b))
	}
	b = b[:len(a)]
	var s [sumLanes]float64
	for ; len(a) >= sumLanes; a, b = a[sumLanes:], b[sumLanes:] {
		x, y := (*[sumLanes]T)(a), (*[sumLanes]T)(b)
		for k := range s {
			s[k] += float64(float64(x[k]) * float64(y[k]))
		}
	}
	for k, v := range a {
		s[k] += float64(float64(v) * float64(b[k]))
	}
	return foldLanes(&s)
}

// dot3Row is Σ a·b·c in float64, but for a·b, which is rounded.
func dot3Row[T float](l level, a, b, c []T) float64 {
	if vectorized[T](l) {
		return dot3Vector(l, asFloat32(a), asFloat32(b), asFloat32(c))
	}
	b, c = b[:len(a)], c[:len(a)]
	var s [sumLanes]float64
	for i, v := range a {
		s[i%sumLanes] += float64(float64(T(v*b[i])) * float64(c[i]))
	}
	return foldLanes(&s)
}

// addColumnsRow computes sums += x.
func addColumnsRow[T float](l level, sums []float64, x []T) {
	if vectorized[T](l) {
		addColumnsVector(l, sums, asFloat32(x))
		return
	}
	x = x[:len(sums)]
	for k, v := range x {
		sums[k] += float64(v)
	}
}

// rowMaximum is the largest element, or −Inf; a NaN that it passes over comes back
// out of the exponential.
func rowMaximum[T float](l level, x []T) T {
	if vectorized[T](l) {
		return T(maximumVector(l, asFloat32(x)))
	}
	m := T(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}
