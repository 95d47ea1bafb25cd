package cpu

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) GatherColumns(dst, src, ids device.Tensor) {
	if isFloat32(dst) {
		gatherColumns[float32](q, dst, src, ids)
	} else {
		gatherColumns[float64](q, dst, src, ids)
	}
}

func (q *queue) ScatterColumns(dst, src, ids device.Tensor) {
	if isFloat32(dst) {
		scatterColumns[float32](q, dst, src, ids)
	} else {
		scatterColumns[float64](q, dst, src, ids)
	}
}

// columnsTask's iterations are blocks of rows.
type columnsTask[T float] struct {
	narrow, wide matrix[T] // [T, K] and [T, E]
	ids          []int32   // [T, K]
	block        int
}

// set reports whether all ids are good.
func (t *columnsTask[T]) set(q *queue, narrow, wide, ids device.Tensor) bool {
	same(narrow, wide)
	*t = columnsTask[T]{narrow: matrixOf[T](narrow), wide: matrixOf[T](wide), ids: elements[int32](ids)}
	t.block = rowBlock(max(t.narrow.width, t.wide.width))
	if t.narrow.rows != t.wide.rows || len(t.ids) != t.narrow.rows*t.narrow.width {
		panic("cpu: columns of unequal rows")
	}
	if i := outside(t.ids, t.wide.width); i >= 0 {
		q.fail(fmt.Errorf("columns: id %d at index %d is outside [0, %d)", t.ids[i], i, t.wide.width))
		return false
	}
	return true
}

// each calls f with the rows of task i.
func (t *columnsTask[T]) each(i int, f func(narrow, wide []T, ids []int32)) {
	k := t.narrow.width
	for row := i * t.block; row < min(t.wide.rows, (i+1)*t.block); row++ {
		f(t.narrow.row(row), t.wide.row(row), t.ids[row*k:(row+1)*k])
	}
}

func (t *columnsTask[T]) tasks() int { return ceilDiv(t.wide.rows, t.block) }

func gatherColumns[T float](q *queue, dst, src, ids device.Tensor) {
	t := &blocks[T](q).columns
	if t.set(q, dst, src, ids) {
		q.run(t.tasks(), (*gatherColumnsTask[T])(t))
	}
}

type gatherColumnsTask[T float] columnsTask[T]

func (t *gatherColumnsTask[T]) do(_, i int) {
	(*columnsTask[T])(t).each(i, func(dst, src []T, ids []int32) {
		for k, id := range ids {
			dst[k] = src[id]
		}
	})
}

func scatterColumns[T float](q *queue, dst, src, ids device.Tensor) {
	t := &blocks[T](q).columns
	if t.set(q, src, dst, ids) {
		q.run(t.tasks(), (*scatterColumnsTask[T])(t))
	}
}

type scatterColumnsTask[T float] columnsTask[T]

func (t *scatterColumnsTask[T]) do(_, i int) {
	(*columnsTask[T])(t).each(i, func(src, dst []T, ids []int32) {
		clear(dst)
		for k, id := range ids {
			dst[id] += src[k]
		}
	})
}
