package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) LogSumExp(dst, x device.Tensor) {
	if isFloat32(dst) {
		logSumExp[float32](q, dst, x)
	} else {
		logSumExp[float64](q, dst, x)
	}
}

type logSumExpTask[T float] struct {
	level         level
	dst           []T
	x             unsafe.Pointer
	width, stride int // columns, and the way to the next row
	block         int // rows per task
}

func logSumExp[T float](q *queue, dst, x device.Tensor) {
	same(dst, x)
	t := &blocks[T](q).logSumExp
	t.level = q.dev.level
	t.dst, t.x, t.width, t.stride = elements[T](dst), x.Pointer(), x.Dim(1), x.Stride(0)
	switch {
	case x.Dim(0) != len(t.dst):
		panic("cpu: log-sum-exp of unequal shapes")
	case t.width > 1 && x.Stride(1) != 1:
		panic("cpu: last dimension is not contiguous")
	}
	t.block = max(1, grain/4/max(1, t.width))
	q.run((len(t.dst)+t.block-1)/t.block, t)
}

func (t *logSumExpTask[T]) do(_, i int) {
	for row := i * t.block; row < min((i+1)*t.block, len(t.dst)); row++ {
		peak, sum := peakSum(t.level, slice[T](t.x, row*t.stride, t.width))
		t.dst[row] = T(float64(peak) + math.Log(sum))
	}
}
