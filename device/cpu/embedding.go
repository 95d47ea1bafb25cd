package cpu

import (
	"fmt"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// embeddingTask copies rows of bytes.
type embeddingTask struct {
	loop                       // dst, ids
	dst, table, ids            unsafe.Pointer
	size, rowBytes, tableBytes int // of an element, a row, the way to the next row of the table
	first, rows                int // of the table
}

func (q *queue) Embedding(dst, table, ids device.Tensor, part device.Part) {
	same(dst, table)
	width, rank := table.Dim(1), dst.Rank()
	switch {
	case ids.Rank() != rank-1 || dst.Last() != width:
		panic("cpu: embedding of unequal shapes")
	case width > 1 && (dst.Stride(rank-1) != 1 || table.Stride(1) != 1):
		panic("cpu: last dimension is not contiguous")
	}
	t := &q.bytes.embedding
	t.over(max(1, grain/max(1, width)), rank-1, dst, ids)
	t.dst, t.table, t.ids = dst.Pointer(), table.Pointer(), ids.Pointer()
	t.size = dst.DType().Size()
	t.rowBytes, t.tableBytes = width*t.size, table.Stride(0)*t.size
	t.first, t.rows = part.First, table.Dim(0)
	if id, i, ok := t.within(1, t.ids, part.Of(t.rows)); !ok {
		q.fail(fmt.Errorf("embedding: id %d at index %d is outside [0, %d)", id, i, part.Of(t.rows)))
		return
	}
	q.run(t.chunks(), t)
}

func (t *embeddingTask) do(_, i int) {
	for c := t.chunk(i); c.next(); {
		for j := range c.n {
			row := int(*item[int32](t.ids, c.at[1]+j*t.step(1))) - t.first
			dst := slice[byte](t.dst, (c.at[0]+j*t.step(0))*t.size, t.rowBytes)
			if uint(row) >= uint(t.rows) {
				clear(dst)
				continue
			}
			copy(dst, slice[byte](t.table, row*t.tableBytes, t.rowBytes))
		}
	}
}

func (q *queue) EmbeddingBackward(dtable, ids, dy device.Tensor, part device.Part) {
	if isFloat32(dtable) {
		embeddingBackward[float32](q, dtable, ids, dy, part)
	} else {
		embeddingBackward[float64](q, dtable, ids, dy, part)
	}
}

// embeddingGradTask's tasks are ranges of columns: each walks all ids, so that
// rows add up in the order of ids however unequally often they occur.
type embeddingGradTask[T float] struct {
	loop                        // dy, ids
	level                       level
	dtable, dy, ids             unsafe.Pointer
	width, columns, tableStride int
	firstRow, rows              int // of dtable
}

func embeddingBackward[T float](q *queue, dtable, ids, dy device.Tensor, part device.Part) {
	same(dtable, dy)
	width, rank := dtable.Dim(1), dy.Rank()
	switch {
	case ids.Rank() != rank-1 || dy.Last() != width:
		panic("cpu: embedding of unequal shapes")
	case width > 1 && (dy.Stride(rank-1) != 1 || dtable.Stride(1) != 1):
		panic("cpu: last dimension is not contiguous")
	}
	t := &blocks[T](q).embeddingGrad
	t.over(grain, rank-1, dy, ids)
	t.level = q.dev.level
	t.dtable, t.dy, t.ids = dtable.Pointer(), dy.Pointer(), ids.Pointer()
	t.width, t.tableStride = width, dtable.Stride(0)
	t.firstRow, t.rows = part.First, dtable.Dim(0)
	if id, i, ok := t.within(1, t.ids, part.Of(t.rows)); !ok {
		q.fail(fmt.Errorf("embedding: id %d at index %d is outside [0, %d)", id, i, part.Of(t.rows)))
		return
	}
	q.Fill(dtable, 0)
	t.columns = max(64, (width+15)/16)
	if t.count()*width < grain {
		t.columns = max(1, width)
	}
	q.run((width+t.columns-1)/t.columns, t)
}

func (t *embeddingGradTask[T]) do(_, task int) {
	first := task * t.columns
	n := min(t.columns, t.width-first)
	for i := range t.chunks() {
		for c := t.chunk(i); c.next(); {
			for j := range c.n {
				row := int(*item[int32](t.ids, c.at[1]+j*t.step(1))) - t.firstRow
				if uint(row) >= uint(t.rows) {
					continue
				}
				sum := slice[T](t.dtable, row*t.tableStride+first, n)
				addScaledRow(t.level, sum, sum, slice[T](t.dy, c.at[0]+j*t.step(0)+first, n), 1)
			}
		}
	}
}
