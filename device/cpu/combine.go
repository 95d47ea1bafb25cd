package cpu

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
)

// gatherRowsTask's iterations are blocks of rows, in bytes.
type gatherRowsTask struct {
	dst, src       matrix[byte]
	index          []int32
	divisor, block int
}

func (q *queue) GatherRows(dst, src, index device.Tensor, divisor int) {
	same(dst, src)
	t := &q.bytes.gatherRows
	*t = gatherRowsTask{dst: bytesOf(dst), src: bytesOf(src), index: elements[int32](index), divisor: divisor}
	switch {
	case len(t.index) != t.dst.rows || t.dst.width != t.src.width:
		panic("cpu: gather of unequal shapes")
	case divisor < 1:
		panic("cpu: gather with a divisor below 1")
	}
	if i := outside(t.index, t.src.rows*divisor); i >= 0 {
		q.fail(fmt.Errorf("gather rows: index %d at index %d is outside [0, %d)", t.index[i], i, t.src.rows*divisor))
		return
	}
	t.block = rowBlock(dst.Dim(1))
	q.run(ceilDiv(t.dst.rows, t.block), t)
}

// bytesOf is a matrix of any dtype.
func bytesOf(t device.Tensor) matrix[byte] {
	m := matrixOf[byte](t)
	m.width *= t.DType().Size()
	m.stride *= t.DType().Size()
	return m
}

func (t *gatherRowsTask) do(_, i int) {
	for row := i * t.block; row < min(t.dst.rows, (i+1)*t.block); row++ {
		copy(t.dst.row(row), t.src.row(int(t.index[row])/t.divisor))
	}
}

func (q *queue) CombineRows(dst, src, position, weight device.Tensor) {
	if isFloat32(dst) {
		combineRows[float32](q, dst, src, position, weight)
	} else {
		combineRows[float64](q, dst, src, position, weight)
	}
}

func (q *queue) CombineRowsBackward(dsrc, dweight, src, position, order, weight, dy device.Tensor) {
	if isFloat32(dy) {
		combineRowsBackward[float32](q, dsrc, dweight, src, position, order, weight, dy)
	} else {
		combineRowsBackward[float64](q, dsrc, dweight, src, position, order, weight, dy)
	}
}

// combineTask's iterations are blocks of tokens.
type combineTask[T float] struct {
	level    level
	dst, src matrix[T]
	position []int32
	weight   []T // or none
	k, block int
}

func combineRows[T float](q *queue, dst, src, position, weight device.Tensor) {
	same(dst, src)
	t := &blocks[T](q).combine
	*t = combineTask[T]{level: q.dev.level, dst: matrixOf[T](dst), src: matrixOf[T](src), position: elements[int32](position)}
	if t.dst.rows == 0 {
		return
	}
	t.k = len(t.position) / t.dst.rows
	if !weight.IsZero() {
		same(dst, weight)
		t.weight = elements[T](weight)
	}
	switch {
	case len(t.position) != t.k*t.dst.rows || t.weight != nil && len(t.weight) != len(t.position):
		panic("cpu: combine of unequal lengths")
	case t.dst.width != t.src.width:
		panic("cpu: combine of unequal widths")
	case !positionsGood(q, t.position, t.src.rows):
		return
	}
	t.block = rowBlock(t.k * t.dst.width)
	q.run(ceilDiv(t.dst.rows, t.block), t)
}

func positionsGood(q *queue, positions []int32, rows int) bool {
	i := outside(positions, rows)
	if i >= 0 {
		q.fail(fmt.Errorf("combine rows: position %d at index %d is outside [0, %d)", positions[i], i, rows))
	}
	return i < 0
}

func (t *combineTask[T]) do(_, task int) {
	for token := task * t.block; token < min(t.dst.rows, (task+1)*t.block); token++ {
		dst := t.dst.row(token)
		if t.k == 0 {
			clear(dst)
		}
		for i := token * t.k; i < (token+1)*t.k; i++ {
			weight := T(1)
			if t.weight != nil {
				weight = t.weight[i]
			}
			src := t.src.row(int(t.position[i]))
			if i == token*t.k {
				scaledRow(t.level, dst, src, weight)
			} else {
				addScaledRow(t.level, dst, dst, src, weight)
			}
		}
	}
}

// combineBackwardTask's iterations are blocks of rows of dsrc, then blocks of
// tokens of dweight.
type combineBackwardTask[T float] struct {
	level         level
	dsrc, src, dy matrix[T]
	order         []int32
	weight        []T // or none

	dweight  []T
	position []int32

	k, rowBlock, rowTasks, tokenBlock int
}

func combineRowsBackward[T float](q *queue, dsrc, dweight, src, position, order, weight, dy device.Tensor) {
	t := &blocks[T](q).combineBackward
	*t = combineBackwardTask[T]{level: q.dev.level, dy: matrixOf[T](dy)}
	if t.dy.rows == 0 {
		return
	}
	tokenTasks := 0
	if !dsrc.IsZero() && !t.setRows(q, dsrc, order, weight) {
		return
	}
	if !dweight.IsZero() {
		if !t.setTokens(q, dweight, src, position) {
			return
		}
		tokenTasks = ceilDiv(t.dy.rows, t.tokenBlock)
	}
	q.run(t.rowTasks+tokenTasks, t)
}

// setRows prepares dsrc.
func (t *combineBackwardTask[T]) setRows(q *queue, dsrc, order, weight device.Tensor) bool {
	t.dsrc, t.order = matrixOf[T](dsrc), elements[int32](order)
	t.k = len(t.order) / t.dy.rows
	if !weight.IsZero() {
		t.weight = elements[T](weight)
	}
	switch {
	case len(t.order) != t.k*t.dy.rows || t.dsrc.rows != len(t.order) || t.weight != nil && len(t.weight) != len(t.order):
		panic("cpu: combine of unequal lengths")
	case t.dsrc.width != t.dy.width:
		panic("cpu: combine of unequal widths")
	}
	t.rowBlock = rowBlock(t.dy.width)
	t.rowTasks = ceilDiv(t.dsrc.rows, t.rowBlock)
	if i := outside(t.order, len(t.order)); i >= 0 {
		q.fail(fmt.Errorf("combine rows: index %d at index %d is outside [0, %d)", t.order[i], i, len(t.order)))
		return false
	}
	return true
}

// setTokens prepares dweight.
func (t *combineBackwardTask[T]) setTokens(q *queue, dweight, src, position device.Tensor) bool {
	t.dweight, t.src, t.position = elements[T](dweight), matrixOf[T](src), elements[int32](position)
	t.k = len(t.position) / t.dy.rows
	switch {
	case len(t.position) != t.k*t.dy.rows || len(t.dweight) != len(t.position):
		panic("cpu: combine of unequal lengths")
	case t.src.width != t.dy.width:
		panic("cpu: combine of unequal widths")
	}
	t.tokenBlock = rowBlock(t.k * t.dy.width)
	return positionsGood(q, t.position, t.src.rows)
}

func (t *combineBackwardTask[T]) do(_, i int) {
	if i < t.rowTasks {
		t.doRows(i)
	} else {
		t.doTokens(i - t.rowTasks)
	}
}

func (t *combineBackwardTask[T]) doRows(task int) {
	for row := task * t.rowBlock; row < min(t.dsrc.rows, (task+1)*t.rowBlock); row++ {
		i, weight := int(t.order[row]), T(1)
		if t.weight != nil {
			weight = t.weight[i]
		}
		scaledRow(t.level, t.dsrc.row(row), t.dy.row(i/t.k), weight)
	}
}

func (t *combineBackwardTask[T]) doTokens(task int) {
	for token := task * t.tokenBlock; token < min(t.dy.rows, (task+1)*t.tokenBlock); token++ {
		dy := t.dy.row(token)
		for i := token * t.k; i < (token+1)*t.k; i++ {
			t.dweight[i] = T(dotRow(t.level, dy, t.src.row(int(t.position[i]))))
		}
	}
}
