package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) GroupedMatMul(dst, a, b, counts device.Tensor) {
	if isFloat32(dst) {
		groupedMatMul[float32](q, dst, a, b, counts)
	} else {
		groupedMatMul[float64](q, dst, a, b, counts)
	}
}

func (q *queue) GroupedMatMulWeight(dst, a, b, counts device.Tensor) {
	if isFloat32(dst) {
		groupedMatMulWeight[float32](q, dst, a, b, counts)
	} else {
		groupedMatMulWeight[float64](q, dst, a, b, counts)
	}
}

// groupedTask computes one product for each group. Its iterations are tiles of
// the products' results: as the bits of a gemmProduct do not depend on how it is
// cut, neither do those of a group.
type groupedTask[T float] struct {
	q       *queue
	groups  []group
	tiles   int // of all groups
	perRow  int // tiles side by side
	tile    groupedTile
	product gemmProduct[T] // of the first group, whole
	// How far the operands of a group lie from those of the first, in elements:
	// a multiple of the group's first row plus a multiple of its number.
	aRow, bRow, cRow int
	bGroup, cGroup   int
	weight           bool // rows are what is summed over
}

// group is one expert's part of the rows.
type group struct {
	firstRow, rows int
	firstTile      int
}

// groupedTile is the part of a result that one worker computes. It packs both
// operands for itself, so that a tile costs less the larger it is.
type groupedTile struct{ rows, columns int }

var (
	groupedTileMax = groupedTile{rows: 768, columns: 512}
	groupedTileMin = groupedTile{rows: 96, columns: 64}
	groupedLimit   = gemmLimit{rows: 768, columns: 512, steps: gemmDepth}
)

func groupedMatMul[T float](q *queue, dst, a, b, counts device.Tensor) {
	same(dst, a)
	same(dst, b)
	if dst.Rank() != 2 || a.Rank() != 2 || b.Rank() != 3 {
		panic("cpu: grouped matmul: ranks are not 2, 2 and 3")
	}
	rows, n, k := dst.Dim(0), dst.Dim(1), a.Dim(1)
	if a.Dim(0) != rows || b.Dim(1) != k || b.Dim(2) != n || counts.Len() != b.Dim(0) {
		panic("cpu: grouped matmul: shapes do not fit")
	}
	if n > 1 && dst.Stride(1) != 1 {
		panic("cpu: grouped matmul: last stride of dst is not 1")
	}
	t := &blocks[T](q).grouped
	t.q, t.weight = q, false
	if !t.setGroups("grouped matmul", counts, rows) {
		return
	}
	t.product.set(q.dev.level, groupedLimit, rows, n, k, a.Pointer(), a.Stride(0), a.Stride(1),
		b.Pointer(), b.Stride(1), b.Stride(2), dst.Pointer(), dst.Stride(0), false)
	t.aRow, t.bRow, t.cRow = a.Stride(0), 0, dst.Stride(0)
	t.bGroup, t.cGroup = b.Stride(0), 0
	t.run(rows * n * k)
}

func groupedMatMulWeight[T float](q *queue, dst, a, b, counts device.Tensor) {
	same(dst, a)
	same(dst, b)
	if dst.Rank() != 3 || a.Rank() != 2 || b.Rank() != 2 {
		panic("cpu: grouped matmul: ranks are not 3, 2 and 2")
	}
	rows, m, n := a.Dim(0), dst.Dim(1), dst.Dim(2)
	if b.Dim(0) != rows || a.Dim(1) != m || b.Dim(1) != n || counts.Len() != dst.Dim(0) {
		panic("cpu: grouped matmul: shapes do not fit")
	}
	if n > 1 && dst.Stride(2) != 1 {
		panic("cpu: grouped matmul: last stride of dst is not 1")
	}
	t := &blocks[T](q).grouped
	t.q, t.weight = q, true
	if !t.setGroups("grouped matmul weight", counts, rows) {
		return
	}
	t.product.set(q.dev.level, groupedLimit, m, n, rows, a.Pointer(), a.Stride(1), a.Stride(0),
		b.Pointer(), b.Stride(0), b.Stride(1), dst.Pointer(), dst.Stride(1), false)
	t.aRow, t.bRow, t.cRow = a.Stride(0), b.Stride(0), 0
	t.bGroup, t.cGroup = 0, dst.Stride(0)
	t.run(rows * m * n)
}

// setGroups reports whether counts are good.
func (t *groupedTask[T]) setGroups(kernel string, counts device.Tensor, rows int) bool {
	c := elements[int32](counts)
	if err := groupsFill(kernel, c, rows); err != nil {
		t.q.fail(err)
		return false
	}
	t.groups = t.groups[:0]
	row := 0
	for _, n := range c {
		t.groups = append(t.groups, group{firstRow: row, rows: int(n)})
		row += int(n)
	}
	return true
}

// run computes all tiles; work is the number of multiply-adds.
func (t *groupedTask[T]) run(work int) {
	if t.cut(); t.tiles == 0 {
		return
	}
	largest := t.product
	largest.a.lanes, largest.b.lanes = min(largest.a.lanes, t.tile.rows), min(largest.b.lanes, t.tile.columns)
	t.q.reserve(gemmEdgeBytes + int64(largest.bufferBytes()))
	if work > gemmAloneWork {
		t.q.run(t.tiles, t)
		return
	}
	for i := range t.tiles {
		t.do(0, i)
	}
}

// cut chooses the largest tiles of which there are enough to keep workers busy to
// the end.
func (t *groupedTask[T]) cut() {
	if t.q.dev.openBLAS {
		t.q.reserve(gemmScratch) // for what OpenBLAS cannot
		t.tile = openBLASTile
		t.countTiles()
		return
	}
	t.tile = groupedTileMax
	for t.countTiles(); t.tiles < gemmTilesWanted; t.countTiles() {
		switch {
		case t.tile.rows > groupedTileMin.rows:
			t.tile.rows /= 2
		case t.tile.columns > groupedTileMin.columns:
			t.tile.columns /= 2
		default:
			return
		}
	}
}

// countTiles numbers the tiles of all groups.
func (t *groupedTask[T]) countTiles() {
	t.tiles, t.perRow = 0, ceilDiv(t.product.b.lanes, t.tile.columns)
	for e := range t.groups {
		g := &t.groups[e]
		g.firstTile = t.tiles
		t.tiles += ceilDiv(t.lanes(g), t.tile.rows) * t.perRow
	}
}

// lanes is the number of rows of a group's result.
func (t *groupedTask[T]) lanes(g *group) int {
	if t.weight {
		return t.product.a.lanes
	}
	return g.rows
}

func (t *groupedTask[T]) do(worker, i int) {
	e := t.groupOf(i)
	g := &t.groups[e]
	i -= g.firstTile
	p := t.product
	if p.a.lanes = t.lanes(g); t.weight {
		p.k = g.rows
	}
	p.shift(t.aRow*g.firstRow, t.bRow*g.firstRow+t.bGroup*e, t.cRow*g.firstRow+t.cGroup*e)
	p.narrow(i/t.perRow*t.tile.rows, i%t.perRow*t.tile.columns, t.tile)
	if t.q.dev.openBLAS {
		p.openBLAS(t.q, worker)
		return
	}
	p.alone(t.q.scratch[worker].base)
}

// groupOf is the last group that starts at the tile or before it: the empty ones
// before it start there too.
func (t *groupedTask[T]) groupOf(tile int) int {
	lo, hi := 0, len(t.groups)
	for hi-lo > 1 {
		if middle := (lo + hi) / 2; t.groups[middle].firstTile <= tile {
			lo = middle
		} else {
			hi = middle
		}
	}
	return lo
}

// shift moves the operands on by a number of elements. Those of a product without
// steps have no elements, and maybe none of the memory that their strides reach over.
func (p *gemmProduct[T]) shift(a, b, c int) {
	size := int(unsafe.Sizeof(*new(T)))
	if p.k > 0 {
		p.a.data = unsafe.Add(p.a.data, a*size)
		p.b.data = unsafe.Add(p.b.data, b*size)
	}
	p.c = unsafe.Add(p.c, c*size)
}

// narrow keeps the part of the result that starts at a row and a column.
func (p *gemmProduct[T]) narrow(row, column int, t groupedTile) {
	p.shift(row*p.a.lane, column*p.b.lane, row*p.cRow+column)
	p.a.lanes = min(p.a.lanes-row, t.rows)
	p.b.lanes = min(p.b.lanes-column, t.columns)
}
