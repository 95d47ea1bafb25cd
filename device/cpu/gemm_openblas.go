package cpu

import (
	"math"

	"github.com/lethe-go/lethe/internal/openblas"
)

// openBLASTile is what one call of OpenBLAS computes of a result. The grid of tiles
// starts at the origin of each product and knows nothing of workers: so neither do the
// bits, whatever OpenBLAS makes of the extents, and a group of a grouped product has
// those of its product alone.
//
// One promise of our own kernels is not kept: the bits of a row may depend on how many
// rows there are beside it. So decoding a token with a cache, and experts spread over
// other numbers of ranks, give the same numbers only up to rounding.
var openBLASTile = groupedTile{rows: 256, columns: 512}

// openBLASTiles computes products of one shape, tile by tile.
type openBLASTiles[T float] struct{ *gemmTasks[T] }

// runOpenBLAS computes the batch.
func (t *gemmTasks[T]) runOpenBLAS() {
	p := &t.product
	n := t.batch.items * ceilDiv(p.a.lanes, openBLASTile.rows) * ceilDiv(p.b.lanes, openBLASTile.columns)
	t.q.reserve(gemmScratch) // for what OpenBLAS cannot
	if t.batch.items*p.work() <= gemmAloneWork {
		alone(n, openBLASTiles[T]{t})
		return
	}
	t.q.run(n, openBLASTiles[T]{t})
}

func (t openBLASTiles[T]) do(worker, i int) {
	p := t.product
	across := ceilDiv(p.b.lanes, openBLASTile.columns)
	perItem := ceilDiv(p.a.lanes, openBLASTile.rows) * across
	p.advance(t.batch, i/perItem)
	i %= perItem
	p.narrow(i/across*openBLASTile.rows, i%across*openBLASTile.columns, openBLASTile)
	p.openBLAS(t.q, worker)
}

// openBLAS computes the product by one call.
func (p *gemmProduct[T]) openBLAS(q *queue, worker int) {
	if p.empty() {
		return
	}
	a, aFits := openBLASMatrix(&p.a, p.k, false)
	b, bFits := openBLASMatrix(&p.b, p.k, true)
	c := openblas.Matrix{Data: p.c, Stride: max(p.cRow, p.b.lanes)}
	switch {
	case !aFits || !bFits || c.Stride > math.MaxInt32 || c.Stride != p.cRow && p.a.lanes > 1:
		p.limit = gemmTileLimit
		p.alone(q.scratch[worker].base)
	case single[T]():
		openblas.Sgemm(p.a.lanes, p.b.lanes, p.k, a, b, c, p.accumulate)
	default:
		openblas.Dgemm(p.a.lanes, p.b.lanes, p.k, a, b, c, p.accumulate)
	}
}

// openBLASMatrix describes an operand, b the other way round, and reports whether BLAS
// knows its like: with rows (or columns) that do not overlap.
func openBLASMatrix[T float](s *gemmSide[T], k int, isB bool) (m openblas.Matrix, fits bool) {
	m = openblas.Matrix{Data: s.data, Stride: s.lane, Transposed: isB}
	rows, columns := s.lanes, k
	if s.step != 1 && k > 1 || s.lane == 1 && s.lanes > 1 {
		m.Stride, m.Transposed = s.step, !isB
		rows, columns = k, s.lanes
		fits = s.lane == 1 || s.lanes == 1
	} else {
		fits = true
	}
	if rows == 1 {
		m.Stride = max(m.Stride, columns)
	}
	return m, fits && m.Stride >= columns && m.Stride <= math.MaxInt32 && max(rows, columns) <= math.MaxInt32
}
