package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// maxOperands is the largest number of tensors a loop walks together.
const maxOperands = 5

// grain is the number of elements that cheap kernels work on per task: some
// microseconds, so that a smaller tensor does not wake the pool.
const grain = 16 << 10

// loop walks tensors of one shape in step. Dimensions that lie without gaps in
// every operand are merged, then the space is cut into chunks: a segment of the
// innermost dimension times a block of rows. Chunks depend on shapes only.
type loop struct {
	operands int
	rank     int // at least 1
	dims     [device.MaxRank]int
	strides  [maxOperands][device.MaxRank]int

	rows, inner       int
	segment, segments int // iterations of the innermost dimension
	block, blocks     int // rows
}

// over prepares a loop over the first rank dimensions of the operands, with
// about perChunk iterations a chunk.
func (l *loop) over(perChunk, rank int, operands ...device.Tensor) {
	l.begin(len(operands))
	for d := range rank {
		n := operands[0].Dim(d)
		var strides [maxOperands]int
		for o := range operands {
			if rank > operands[o].Rank() || operands[o].Dim(d) != n {
				panic("cpu: operands of unequal shapes")
			}
			strides[o] = operands[o].Stride(d)
		}
		l.dimension(n, &strides)
	}
	l.cut(perChunk)
}

// overElements is over for elementwise kernels: all dimensions.
func (l *loop) overElements(perChunk int, operands ...device.Tensor) {
	rank := operands[0].Rank()
	for o := range operands {
		if operands[o].Rank() != rank {
			panic("cpu: operands of unequal ranks")
		}
	}
	l.over(perChunk, rank, operands...)
}

// overRows is over for kernels that work on whole rows, contiguous in the last
// dimension: an iteration is a row.
func (l *loop) overRows(perChunk int, operands ...device.Tensor) {
	rank, width := operands[0].Rank(), operands[0].Last()
	for o := range operands {
		t := &operands[o]
		if t.Rank() != rank || t.Last() != width {
			panic("cpu: operands of unequal shapes")
		}
		if rank > 0 && width > 1 && t.Stride(rank-1) != 1 {
			panic("cpu: last dimension is not contiguous")
		}
	}
	l.over(max(1, perChunk/max(1, width)), max(0, rank-1), operands...)
}

func (l *loop) begin(operands int) {
	l.operands, l.rank = operands, 0
}

// dimension adds the next inner dimension.
func (l *loop) dimension(n int, strides *[maxOperands]int) {
	if n == 1 {
		return
	}
	merge := l.rank > 0
	for o := 0; o < l.operands && merge; o++ {
		merge = l.strides[o][l.rank-1] == strides[o]*n
	}
	if !merge {
		l.dims[l.rank] = 1
		l.rank++
	}
	l.dims[l.rank-1] *= n
	for o := range l.operands {
		l.strides[o][l.rank-1] = strides[o]
	}
}

// cut divides the space into chunks.
func (l *loop) cut(perChunk int) {
	if l.rank == 0 {
		l.rank, l.dims[0] = 1, 1
		for o := range l.operands {
			l.strides[o][0] = 1
		}
	}
	l.rows = 1
	for d := range l.rank - 1 {
		l.rows *= l.dims[d]
	}
	l.inner = l.dims[l.rank-1]
	segment := max(1, min(l.inner, perChunk))
	l.tile(segment, perChunk/segment)
}

// tile sets the size of a chunk.
func (l *loop) tile(segment, block int) {
	l.segment = max(1, min(l.inner, segment))
	l.segments = (l.inner + l.segment - 1) / l.segment
	l.block = max(1, min(l.rows, block))
	l.blocks = (l.rows + l.block - 1) / l.block
}

// chunks is the number of tasks.
func (l *loop) chunks() int { return l.segments * l.blocks }

// step is the distance between neighbouring iterations of an operand.
func (l *loop) step(operand int) int { return l.strides[operand][l.rank-1] }

// dense reports whether all operands are contiguous in the innermost dimension.
func (l *loop) dense() bool {
	for o := range l.operands {
		if l.step(o) != 1 && l.inner != 1 {
			return false
		}
	}
	return true
}

// count is the number of iterations.
func (l *loop) count() int { return l.rows * l.inner }

// offsets returns the operands' offsets at iteration i.
func (l *loop) offsets(i int) (at [maxOperands]int) {
	for d := l.rank - 1; d >= 0; d-- {
		index := i % l.dims[d]
		i /= l.dims[d]
		for o := range l.operands {
			at[o] += index * l.strides[o][d]
		}
	}
	return at
}

// within reports whether all elements of an int32 operand lie in [0, limit), or
// else the first that does not and its index. Kernels look before they use any,
// so that bad data changes nothing.
func (l *loop) within(operand int, base unsafe.Pointer, limit int) (id int32, index int, ok bool) {
	ok = true
	step := l.step(operand)
	for i := range l.chunks() {
		for c := l.chunk(i); c.next(); {
			for j := range c.n {
				id := int64(*item[int32](base, c.at[operand]+j*step))
				ok = ok && uint64(id) < uint64(limit)
			}
		}
	}
	if ok {
		return 0, 0, true
	}
	for i := range l.count() {
		id := *item[int32](base, l.offsets(i)[operand])
		if id < 0 || int(id) >= limit {
			return id, i, false
		}
	}
	return 0, 0, true
}

// cursor visits the rows of a chunk, or, with limit, pieces of them.
type cursor struct {
	l  *loop
	n  int              // iterations from at on
	at [maxOperands]int // offsets in elements

	row, end     int
	column, stop int // the next piece, and the segment's end
	limit        int
	index        [device.MaxRank]int
	base         [maxOperands]int // of the row
}

// chunk returns a cursor over chunk i; call next before the first use.
func (l *loop) chunk(i int) cursor { return l.pieces(i, l.segment) }

// pieces is chunk with at most limit iterations at a time.
func (l *loop) pieces(i, limit int) cursor {
	segment, block := i/l.blocks, i%l.blocks
	c := cursor{l: l, limit: limit, row: block*l.block - 1}
	c.end = min((block+1)*l.block, l.rows)
	c.column = segment * l.segment
	c.stop = min(c.column+l.segment, l.inner)
	rest := block * l.block
	for d := l.rank - 2; d >= 0; d-- {
		c.index[d] = rest % l.dims[d]
		rest /= l.dims[d]
		for o := range l.operands {
			c.base[o] += c.index[d] * l.strides[o][d]
		}
	}
	return c
}

// next moves to the next row or piece and reports whether there is one.
func (c *cursor) next() bool {
	l := c.l
	c.column += c.n
	if c.n == 0 {
		c.row++
	} else if c.column >= c.stop {
		c.row++
		c.column = c.stop - (c.stop-1)%l.segment - 1
		if c.row < c.end {
			c.carry()
		}
	}
	if c.row >= c.end {
		return false
	}
	c.n = min(c.limit, c.stop-c.column)
	for o := range l.operands {
		c.at[o] = c.base[o] + c.column*l.strides[o][l.rank-1]
	}
	return true
}

// rows moves on to the last of the rows that lie evenly apart, from the present one on,
// and returns how many these are and their distances.
func (c *cursor) rows() (n int, apart [maxOperands]int) {
	l, d := c.l, c.l.rank-2
	if d < 0 {
		return 1, apart
	}
	n = min(c.end-c.row, l.dims[d]-c.index[d])
	c.row += n - 1
	c.index[d] += n - 1
	for o := range l.operands {
		apart[o] = l.strides[o][d]
		c.base[o] += (n - 1) * apart[o]
	}
	return n, apart
}

// carry counts the index of the row up by one.
func (c *cursor) carry() {
	l := c.l
	for d := l.rank - 2; d >= 0; d-- {
		c.index[d]++
		for o := range l.operands {
			c.base[o] += l.strides[o][d]
		}
		if c.index[d] < l.dims[d] {
			return
		}
		c.index[d] = 0
		for o := range l.operands {
			c.base[o] -= l.dims[d] * l.strides[o][d]
		}
	}
}
