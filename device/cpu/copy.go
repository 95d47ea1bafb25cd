package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) Fill(dst device.Tensor, value float64) {
	t := &q.bytes.fill
	t.overElements(grain, dst)
	t.dst, t.size = dst.Pointer(), dst.DType().Size()
	t.pattern = encode(dst.DType(), value)
	q.run(t.chunks(), t)
}

type fillTask struct {
	loop
	dst     unsafe.Pointer
	size    int
	pattern uint64
}

func (t *fillTask) do(_, i int) {
	for c := t.chunk(i); c.next(); {
		switch t.size {
		case 1:
			fillRow(t.dst, c.at[0], t.step(0), c.n, uint8(t.pattern))
		case 2:
			fillRow(t.dst, c.at[0], t.step(0), c.n, uint16(t.pattern))
		case 4:
			fillRow(t.dst, c.at[0], t.step(0), c.n, uint32(t.pattern))
		default:
			fillRow(t.dst, c.at[0], t.step(0), c.n, t.pattern)
		}
	}
}

func fillRow[E comparable](base unsafe.Pointer, at, step, n int, value E) {
	if step != 1 {
		for i := range n {
			*item[E](base, at+i*step) = value
		}
		return
	}
	dst := slice[E](base, at, n)
	if value == *new(E) {
		clear(dst)
		return
	}
	for i := range dst {
		dst[i] = value
	}
}

// encode returns the bits of a value in a dtype.
func encode(d device.DType, value float64) uint64 {
	switch d {
	case device.Float32:
		return uint64(math.Float32bits(float32(value)))
	case device.Float64:
		return math.Float64bits(value)
	case device.BFloat16:
		return uint64(bfloat16(toOdd(value)))
	case device.Float16:
		return uint64(float16(toOdd(value)))
	}
	return uint64(toInt(d, value))
}

// transposeTile is the edge of the squares in which a copy exchanges
// dimensions: their cache lines stay in the first-level cache.
const transposeTile = 64

func (q *queue) Copy(dst, src device.Tensor) {
	t := &q.bytes.copy
	t.overElements(grain, dst, src)
	if !t.dense() && t.rank > 1 && t.step(1) != 0 {
		t.tile(transposeTile, transposeTile)
	}
	t.dst, t.src, t.to, t.from = dst.Pointer(), src.Pointer(), dst.DType(), src.DType()
	t.vectors = q.dev.level != levelGo && t.to == t.from && t.dense() && t.inner*t.to.Size()%rowBytes == 0
	q.run(t.chunks(), t)
}

type copyTask struct {
	loop
	dst, src unsafe.Pointer
	to, from device.DType
	vectors  bool // whole rows are multiples of rowBytes
}

func (t *copyTask) do(_, i int) {
	for c := t.chunk(i); c.next(); {
		switch {
		case t.to != t.from:
			t.convert(&c)
			continue
		case t.vectors && c.n == t.inner:
			t.copyRows(&c)
			continue
		}
		switch t.to.Size() {
		case 1:
			copyRow[uint8](t, &c)
		case 2:
			copyRow[uint16](t, &c)
		case 4:
			copyRow[uint32](t, &c)
		default:
			copyRow[uint64](t, &c)
		}
	}
}

// copyRows copies the row of c and those behind it that lie evenly apart.
func (t *copyTask) copyRows(c *cursor) {
	size, from := t.to.Size(), c.at
	rows, apart := c.rows()
	copyRowsAVX2(unsafe.Add(t.dst, from[0]*size), apart[0]*size, unsafe.Add(t.src, from[1]*size), apart[1]*size,
		rows, c.n*size/rowBytes)
}

func copyRow[E any](t *copyTask, c *cursor) {
	dstStep, srcStep := t.step(0), t.step(1)
	if dstStep == 1 && srcStep == 1 {
		copy(slice[E](t.dst, c.at[0], c.n), slice[E](t.src, c.at[1], c.n))
		return
	}
	for i := range c.n {
		*item[E](t.dst, c.at[0]+i*dstStep) = *item[E](t.src, c.at[1]+i*srcStep)
	}
}
