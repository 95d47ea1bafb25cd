package cpu

import "unsafe"

// gemmProduct is one product of matrices under way.
//
// It is cut into slabs that the packed operands of fit the pack buffers. Of each
// slab, operands are packed first, or left in place where packing does not pay,
// and then c is computed in tiles. Where one operand fits as a whole, every tile packs
// the other's lanes for itself: these then come from the second-level cache. Every element of c is the sum over blocks of
// gemmDepth steps, in order, of what the micro-kernel sums for it alone. So its
// bits depend neither on slabs and tiles nor on packing nor on who computes it.
type gemmProduct[T float] struct {
	level      level
	a, b       gemmSide[T]
	k          int
	c          unsafe.Pointer
	cRow       int // in elements
	accumulate bool
	limit      gemmLimit
	turned     bool // the product is cᵀ = bᵀ·aᵀ: rows of a are those of the result's columns
	halved     bool // b has at most half a panel of columns: panels are of that width
	dotted     bool // b is a vector
	wanted     int  // tiles that a slab should have, to keep workers busy to the end

	freshA, freshB bool // tiles pack this operand for themselves

	// The slab: rows a.first to a.last, columns b.first to b.last, steps a.start
	// to a.stop; and how it is tiled.
	tileRows, tileColumns, tilesAcross int
}

// gemmLimit bounds the slabs. Extents are multiples of every tile's.
type gemmLimit struct{ rows, columns, steps int }

const (
	// gemmScratch is the scratch, in bytes, that gemmTile may need from a worker.
	gemmScratch = 4 << 20
	// gemmEdgeBytes is room for one tile of the micro-kernel.
	gemmEdgeBytes = 4096
)

// gemmTileLimit keeps both packed operands of a float64 slab within gemmScratch.
var gemmTileLimit = gemmLimit{rows: 384, columns: 512, steps: 2 * gemmDepth}

// gemmTile computes c[m×n] = a[m×k]·b[k×n], plus the old c when accumulate is
// set, on the calling goroutine. Element (i, j) of an operand lies at
// i·row + j·column elements from its pointer; c's columns are contiguous.
// scratch has gemmScratch bytes, aligned to 64.
func gemmTile[T float](l level, m, n, k int, a unsafe.Pointer, aRow, aColumn int, b unsafe.Pointer, bRow, bColumn int,
	c unsafe.Pointer, cRow int, accumulate bool, scratch unsafe.Pointer) {
	var p gemmProduct[T]
	p.set(l, gemmTileLimit, m, n, k, a, aRow, aColumn, b, bRow, bColumn, c, cRow, accumulate)
	p.alone(scratch)
}

// set describes the product.
func (p *gemmProduct[T]) set(l level, limit gemmLimit, m, n, k int, a unsafe.Pointer, aRow, aColumn int,
	b unsafe.Pointer, bRow, bColumn int, c unsafe.Pointer, cRow int, accumulate bool) {
	rows, columns := gemmTileOf[T](l)
	*p = gemmProduct[T]{
		level: l, limit: limit, k: k, c: c, cRow: cRow, accumulate: accumulate, wanted: 1,
		a: gemmSide[T]{data: a, lane: aRow, step: aColumn, lanes: m, width: rows},
		b: gemmSide[T]{data: b, lane: bColumn, step: bRow, lanes: n, width: columns},
	}
}

// alone computes the product on the calling goroutine.
func (p *gemmProduct[T]) alone(scratch unsafe.Pointer) {
	if p.empty() {
		return
	}
	p.place(unsafe.Add(scratch, gemmEdgeBytes))
	for more := p.firstSlab(); more; more = p.nextSlab() {
		for i := range p.packTasks() {
			p.pack(i)
		}
		for i := range p.tiles() {
			p.tile(i, scratch)
		}
	}
}

// work is the number of multiply-adds.
func (p *gemmProduct[T]) work() int { return p.a.lanes * p.b.lanes * p.k }

// advance moves on by some items of a batch.
func (p *gemmProduct[T]) advance(batch gemmBatch, items int) {
	p.shift(items*batch.a, items*batch.b, items*batch.c)
}

// empty finishes products that have nothing to sum.
func (p *gemmProduct[T]) empty() bool {
	if p.k == 0 && !p.accumulate {
		for i := range p.a.lanes {
			clear(p.row(i, 0, p.b.lanes))
		}
	}
	return p.k == 0 || p.a.lanes == 0 || p.b.lanes == 0
}

// row is the columns [from, to) of a row of c.
func (p *gemmProduct[T]) row(i, from, to int) []T {
	return unsafe.Slice((*T)(p.address(i, from)), to-from)
}

func (p *gemmProduct[T]) address(i, j int) unsafe.Pointer {
	return unsafe.Add(p.c, (i*p.cRow+j)*int(unsafe.Sizeof(*new(T))))
}

// Operands that few lanes of the other meet are read in place. Where the rows or
// columns that the micro-kernel walks across are gemmNearBytes apart or more, they
// compete for the same lines of the first-level cache.
const (
	gemmInPlaceColumns = 256
	gemmInPlaceRows    = 192
	gemmInPlaceRowsFar = 12
	gemmNearBytes      = 1024
	// Rows this far apart share eight lines of the first-level cache: of a strip of
	// twelve, each would push out another before its line is used up.
	gemmSameSetBytes = 4096
)

// place decides which operands are packed, and gives those their buffers. One for the
// operand that tiles pack for themselves comes first, and each worker has its own.
func (p *gemmProduct[T]) place(buffer unsafe.Pointer) {
	p.turn()
	aInPlace, bInPlace := p.inPlace()
	p.freshen(aInPlace, bInPlace)
	size := int(unsafe.Sizeof(*new(T)))
	buffer = unsafe.Add(buffer, p.freshBytes())
	if !aInPlace && !p.freshA {
		p.a.packed = buffer
		buffer = unsafe.Add(buffer, alignUp(min(p.limit.rows, roundUp(p.a.lanes, p.a.width))*min(p.limit.steps, p.k)*size))
	}
	if !bInPlace && !p.freshB {
		p.b.packed = buffer
	}
	if p.a.inPlace() {
		p.limit.rows = p.a.lanes
	}
	if p.b.inPlace() {
		p.limit.columns = p.b.lanes
	}
	if p.a.inPlace() && p.b.inPlace() {
		p.limit.steps = p.k
	}
}

// freshen decides whether tiles pack an operand for themselves: the larger one, whose
// lanes suffice for as many tiles as are wanted, where the other fits into its buffer. Each
// panel of b then meets all rows of a, so that these should not be too many.
func (p *gemmProduct[T]) freshen(aInPlace, bInPlace bool) {
	if p.turned {
		return
	}
	p.freshA = !aInPlace && p.b.lanes <= p.limit.columns && p.a.lanes > p.wanted*p.a.width
	p.freshB = !bInPlace && p.a.lanes <= min(gemmFreshRows, p.limit.rows) && p.b.lanes > p.wanted*p.b.width
	if p.freshA && p.freshB {
		p.freshA = p.a.lanes >= p.b.lanes
		p.freshB = !p.freshA
	}
}

// freshBytes is the size of what a tile packs for itself.
func (p *gemmProduct[T]) freshBytes() int {
	return alignUp(gemmTileRows * min(gemmDepth, p.k) * int(unsafe.Sizeof(*new(T))))
}

// turn exchanges the operands of a product of at most a panel of rows where the elements
// of a column of b are neighbours, as those of a weight's row are in x·wᵀ: read in place as
// a, they need not be packed, which would cost more than the product. Each sum is of the
// same products in the same order as before.
func (p *gemmProduct[T]) turn() {
	if p.turned || p.a.lanes > p.b.width || p.b.step != 1 || p.b.lane == 1 || p.b.lanes < p.a.width {
		return
	}
	p.turned = true
	rows, columns := p.a.width, p.b.width
	p.a, p.b = p.b, p.a
	p.a.width, p.b.width = rows, columns
	dotRows := gemmDotRows[T](p.level)
	switch {
	case p.b.lanes == 1 && dotRows > 0 && p.a.lanes >= dotRows && p.b.step == 1 && p.k%16 == 0:
		p.dotted, p.a.width, p.b.width = true, dotRows, 1
	case p.b.lanes <= columns/2:
		p.halved, p.b.width = true, columns/2
	}
	p.limit.columns = roundUp(p.b.lanes, p.b.width)
}

// inPlace reports which operands stay where they are.
func (p *gemmProduct[T]) inPlace() (a, b bool) {
	near := func(s *gemmSide[T]) bool { return s.step*int(unsafe.Sizeof(*new(T))) < gemmNearBytes }
	rows := gemmInPlaceRowsFar
	if near(&p.b) {
		rows = gemmInPlaceRows
	}
	apart := p.a.lane*int(unsafe.Sizeof(*new(T)))%gemmSameSetBytes != 0
	a = p.a.lanes >= p.a.width && p.b.lanes <= gemmInPlaceColumns &&
		(p.a.step == 1 && apart || p.a.lane == 1 && near(&p.a) && p.k <= gemmDepth)
	b = p.dotted || !p.halved && p.b.lanes >= p.b.width && p.b.lane == 1 && p.a.lanes <= rows
	return a, b
}

// bufferBytes is the size of the buffer that place hands out.
func (p *gemmProduct[T]) bufferBytes() int {
	steps, size := min(p.limit.steps, p.k), int(unsafe.Sizeof(*new(T)))
	return p.freshBytes() + alignUp(min(p.limit.rows, roundUp(p.a.lanes, p.a.width))*steps*size) +
		min(p.limit.columns, roundUp(p.b.lanes, p.b.width))*steps*size
}

// firstSlab starts at the origin.
func (p *gemmProduct[T]) firstSlab() bool {
	p.a.move(0, p.limit.rows, 0, p.limit.steps, p.k)
	p.b.move(0, p.limit.columns, 0, p.limit.steps, p.k)
	p.tileSlab()
	return true
}

// nextSlab goes on with rows first, then steps, then columns: b is packed once,
// and for each element of c steps come in order.
func (p *gemmProduct[T]) nextSlab() bool {
	row, column, step := p.a.last, p.b.first, p.a.start
	if row == p.a.lanes {
		row, step = 0, p.a.stop
	}
	if step == p.k {
		step, column = 0, p.b.last
	}
	if column == p.b.lanes {
		return false
	}
	p.a.move(row, p.limit.rows, step, p.limit.steps, p.k)
	p.b.move(column, p.limit.columns, step, p.limit.steps, p.k)
	p.tileSlab()
	return true
}

// move sets the part to pack, and keeps what is packed if it is the same.
func (s *gemmSide[T]) move(first, lanes, start, steps, k int) {
	last, stop := min(s.lanes, first+lanes), min(k, start+steps)
	s.stale = first != s.first || last != s.last || start != s.start || stop != s.stop
	s.first, s.last, s.start, s.stop = first, last, start, stop
}

func (p *gemmProduct[T]) packTasks() int { return p.a.packTasks() + p.b.packTasks() }

func (p *gemmProduct[T]) pack(i int) {
	if n := p.a.packTasks(); i >= n {
		p.b.pack(p.level, i-n)
		return
	}
	p.a.pack(p.level, i)
}

const (
	// A block of a of gemmTileRows × gemmDepth stays in the second-level cache, and so do
	// one of b of gemmFreshColumns and one of gemmFreshRows of a.
	gemmTileRows     = 144
	gemmTileColumns  = 256
	gemmFreshColumns = 128
	gemmFreshRows    = 512
	// gemmTilesWanted is how many tiles a slab should have that several workers share,
	// as long as tiles have gemmTileColumnsMin columns.
	gemmTilesWanted    = 24
	gemmTileColumnsMin = 64
)

// tileSlab cuts the slab into tiles of about equal size.
func (p *gemmProduct[T]) tileSlab() {
	rows, columns := p.a.last-p.a.first, p.b.last-p.b.first
	switch {
	case p.freshA:
		p.tileRows, p.tileColumns = min(gemmTileRows, roundUp(ceilDiv(rows, p.wanted), p.a.width)), columns
	case p.freshB:
		p.tileRows, p.tileColumns = rows, min(gemmFreshColumns, roundUp(ceilDiv(columns, p.wanted), p.b.width))
	default:
		down := ceilDiv(rows, gemmTileRows)
		p.tileRows = roundUp(ceilDiv(rows, down), p.a.width)
		down = ceilDiv(rows, p.tileRows)
		p.tileColumns = gemmTileColumns
		for p.tileColumns > gemmTileColumnsMin && down*ceilDiv(columns, p.tileColumns) < p.wanted {
			p.tileColumns /= 2
		}
	}
	p.tilesAcross = ceilDiv(columns, p.tileColumns)
}

func (p *gemmProduct[T]) tiles() int {
	return p.tilesAcross * ceilDiv(p.a.last-p.a.first, p.tileRows)
}

// tile computes one tile of the slab. scratch is the worker's.
func (p *gemmProduct[T]) tile(index int, scratch unsafe.Pointer) {
	i := p.a.first + index/p.tilesAcross*p.tileRows
	j := p.b.first + index%p.tilesAcross*p.tileColumns
	iEnd, jEnd := min(p.a.last, i+p.tileRows), min(p.b.last, j+p.tileColumns)
	fresh := *p
	for step := p.a.start; step < p.a.stop; step += gemmDepth {
		if p.freshA {
			fresh.a.freshen(p.level, i, iEnd, step, p.a.stop, scratch)
		} else if p.freshB {
			fresh.b.freshen(p.level, j, jEnd, step, p.b.stop, scratch)
		}
		for column := j; column < jEnd; column += p.b.width {
			fresh.strips(i, iEnd, column, step, min(gemmDepth, p.a.stop-step), scratch)
		}
	}
}

// freshen packs what a tile needs of one depth of the operand.
func (s *gemmSide[T]) freshen(l level, first, last, step, stop int, scratch unsafe.Pointer) {
	s.packed, s.stale = unsafe.Add(scratch, gemmEdgeBytes), true
	s.first, s.last, s.start, s.stop = first, last, step, min(stop, step+gemmDepth)
	for task := range s.packTasks() {
		s.pack(l, task)
	}
}

// strips multiplies the rows [i, iEnd) of a with the panel of b at column j, for depth
// steps. edge has gemmEdgeBytes.
func (p *gemmProduct[T]) strips(i, iEnd, j, step, depth int, edge unsafe.Pointer) {
	accumulate := p.accumulate || step > 0
	if p.turned {
		p.turnedStrips(i, iEnd, j, step, depth, accumulate, edge)
		return
	}
	b, bNext, _, bStep := p.b.panel(j, step, depth)
	if j+p.b.width <= p.b.lanes && i < iEnd {
		cRow := p.cRow * int(unsafe.Sizeof(*new(T)))
		if whole := (iEnd - i) / p.a.width; whole > 0 {
			a, aStrip, aRow, aStep := p.a.panel(i, step, depth)
			gemmPanel[T](p.level, whole, depth, a, aStrip, aRow, aStep, b, bStep, bNext, p.address(i, j), cRow, accumulate)
			i += whole * p.a.width
		}
		for ; i+gemmShortRows <= iEnd; i += gemmShortRows {
			a, _, aRow, aStep := p.a.panel(i, step, depth)
			a = unsafe.Add(a, (i-p.a.origin(i))*aRow)
			gemmShort[T](p.level, depth, a, aRow, aStep, b, bStep, p.address(i, j), cRow, accumulate)
		}
	}
	for ; i < iEnd; i += p.a.width {
		a, aStrip, aRow, aStep := p.a.panel(i, step, depth)
		edgeRow := p.b.width * int(unsafe.Sizeof(*new(T)))
		gemmPanel[T](p.level, 1, depth, a, aStrip, aRow, aStep, b, bStep, bNext, edge, edgeRow, false)
		p.copyEdge(i, j, accumulate, edge)
	}
}

// turnedStrips is strips for a turned product.
func (p *gemmProduct[T]) turnedStrips(i, iEnd, j, step, depth int, accumulate bool, edge unsafe.Pointer) {
	b, bNext, _, bStep := p.b.panel(j, step, depth)
	for ; i < iEnd; i += p.a.width {
		a, aStrip, aRow, aStep := p.a.panel(i, step, depth)
		switch {
		case p.dotted:
			gemmDot(depth/16, a, aRow, b, edge)
		case p.halved:
			gemmNarrow[T](p.level, depth, a, aRow, aStep, b, edge, false)
		default:
			edgeRow := p.b.width * int(unsafe.Sizeof(*new(T)))
			gemmPanel[T](p.level, 1, depth, a, aStrip, aRow, aStep, b, bStep, bNext, edge, edgeRow, false)
		}
		p.copyTurned(i, j, accumulate, edge)
	}
}

// copyTurned is copyEdge for a turned product.
func (p *gemmProduct[T]) copyTurned(i, j int, accumulate bool, edge unsafe.Pointer) {
	iEnd, jEnd := min(p.a.lanes, i+p.a.width), min(p.b.lanes, j+p.b.width)
	from := unsafe.Slice((*T)(edge), p.a.width*p.b.width)
	from = from[(i-p.a.origin(i))*p.b.width+j-p.b.origin(j):]
	for ; j < jEnd; j++ {
		to := p.row(j, i, iEnd)
		if accumulate {
			for x := range to {
				to[x] += from[x*p.b.width]
			}
		} else {
			for x := range to {
				to[x] = from[x*p.b.width]
			}
		}
		from = from[1:]
	}
}

// copyEdge takes from a tile what lies within c and is not in another tile.
func (p *gemmProduct[T]) copyEdge(i, j int, accumulate bool, edge unsafe.Pointer) {
	iEnd, jEnd := min(p.a.lanes, i+p.a.width), min(p.b.lanes, j+p.b.width)
	from := unsafe.Slice((*T)(edge), p.a.width*p.b.width)[j-p.b.origin(j):]
	from = from[(i-p.a.origin(i))*p.b.width:]
	for ; i < iEnd; i++ {
		to := p.row(i, j, jEnd)
		if accumulate {
			for x := range to {
				to[x] += from[x]
			}
		} else {
			copy(to, from)
		}
		if i+1 < iEnd {
			from = from[p.b.width:]
		}
	}
}

func roundUp(a, unit int) int { return ceilDiv(a, unit) * unit }

// alignUp rounds a number of bytes up to whole cache lines.
func alignUp(bytes int) int { return (bytes + 63) &^ 63 }
