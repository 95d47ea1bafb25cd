package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) Softmax(dst, x device.Tensor) {
	if isFloat32(dst) {
		softmax[float32](q, dst, x)
	} else {
		softmax[float64](q, dst, x)
	}
}

func (q *queue) SoftmaxBackward(dx, y, dy device.Tensor) {
	if isFloat32(dx) {
		softmaxBackward[float32](q, dx, y, dy)
	} else {
		softmaxBackward[float64](q, dx, y, dy)
	}
}

type softmaxTask[T float] struct {
	loop
	level  level
	dst, x unsafe.Pointer
	width  int
}

func softmax[T float](q *queue, dst, x device.Tensor) {
	same(dst, x)
	t := &blocks[T](q).softmax
	t.overRows(grain/4, dst, x)
	t.level = q.dev.level
	t.dst, t.x, t.width = dst.Pointer(), x.Pointer(), x.Last()
	q.run(t.chunks(), t)
}

func (t *softmaxTask[T]) do(_, i int) {
	if t.width == 0 {
		return
	}
	for c := t.chunk(i); c.next(); {
		for j := range c.n {
			dst := slice[T](t.dst, c.at[0]+j*t.step(0), t.width)
			sum := expSum(t.level, dst, slice[T](t.x, c.at[1]+j*t.step(1), t.width))
			scaledRow(t.level, dst, dst, T(1/sum))
		}
	}
}

// expSum computes dst = exp(x − max x) and returns its sum.
func expSum[T float](l level, dst, x []T) float64 {
	expRow(l, dst, x, 1, -rowMaximum(l, x))
	return sumRow(l, dst)
}

type softmaxBackwardTask[T float] struct {
	loop
	level     level
	dx, y, dy unsafe.Pointer
	width     int
}

func softmaxBackward[T float](q *queue, dx, y, dy device.Tensor) {
	same(dx, y)
	same(dx, dy)
	t := &blocks[T](q).softmaxBackward
	t.overRows(grain/2, dx, y, dy)
	t.level = q.dev.level
	t.dx, t.y, t.dy, t.width = dx.Pointer(), y.Pointer(), dy.Pointer(), y.Last()
	q.run(t.chunks(), t)
}

func (t *softmaxBackwardTask[T]) do(_, i int) {
	for c := t.chunk(i); c.next(); {
		for j := range c.n {
			dx := slice[T](t.dx, c.at[0]+j*t.step(0), t.width)
			y := slice[T](t.y, c.at[1]+j*t.step(1), t.width)
			dy := slice[T](t.dy, c.at[2]+j*t.step(2), t.width)
			softmaxBackwardRow(t.level, dx, y, dy, T(dotRow(t.level, y, dy)))
		}
	}
}

func softmaxBackwardRow[T float](l level, dx, y, dy []T, dot T) {
	if vectorized[T](l) {
		softmaxBackwardVector(l, asFloat32(dx), asFloat32(y), asFloat32(dy), float32(dot))
		return
	}
	dx, dy = dx[:len(y)], dy[:len(y)]
	for k, p := range y {
		dx[k] = p * (dy[k] - dot)
	}
}
