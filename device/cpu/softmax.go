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
	dst, x unsafe.Pointer
	width  int
}

func softmax[T float](q *queue, dst, x device.Tensor) {
	same(dst, x)
	t := &blocks[T](q).softmax
	t.overRows(grain/4, dst, x)
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
			sum := expSum(dst, slice[T](t.x, c.at[1]+j*t.step(1), t.width))
			scaleRow(dst, T(1/sum))
		}
	}
}

// expSum computes dst = exp(x − max x) and returns its sum.
func expSum[T float](dst, x []T) float64 {
	expRow(dst, x, 1, -rowMaximum(x))
	return sumRow(dst)
}

// rowMaximum is the largest element of a row with at least one; a NaN that it
// passes over comes back out of the exponential.
func rowMaximum[T float](x []T) T {
	m0, m1, m2, m3 := x[0], x[0], x[0], x[0]
	i := 0
	for ; i <= len(x)-4; i += 4 {
		v := (*[4]T)(x[i:])
		if v[0] > m0 {
			m0 = v[0]
		}
		if v[1] > m1 {
			m1 = v[1]
		}
		if v[2] > m2 {
			m2 = v[2]
		}
		if v[3] > m3 {
			m3 = v[3]
		}
	}
	for ; i < len(x); i++ {
		if x[i] > m0 {
			m0 = x[i]
		}
	}
	return max(m0, m1, m2, m3)
}

// scaleRow computes x = x·factor.
func scaleRow[T float](x []T, factor T) {
	i := 0
	for ; i <= len(x)-4; i += 4 {
		v := (*[4]T)(x[i:])
		v[0] *= factor
		v[1] *= factor
		v[2] *= factor
		v[3] *= factor
	}
	for ; i < len(x); i++ {
		x[i] *= factor
	}
}

type softmaxBackwardTask[T float] struct {
	loop
	dx, y, dy unsafe.Pointer
	width     int
}

func softmaxBackward[T float](q *queue, dx, y, dy device.Tensor) {
	same(dx, y)
	same(dx, dy)
	t := &blocks[T](q).softmaxBackward
	t.overRows(grain/2, dx, y, dy)
	t.dx, t.y, t.dy, t.width = dx.Pointer(), y.Pointer(), dy.Pointer(), y.Last()
	q.run(t.chunks(), t)
}

func (t *softmaxBackwardTask[T]) do(_, i int) {
	for c := t.chunk(i); c.next(); {
		for j := range c.n {
			dx := slice[T](t.dx, c.at[0]+j*t.step(0), t.width)
			y := slice[T](t.y, c.at[1]+j*t.step(1), t.width)
			dy := slice[T](t.dy, c.at[2]+j*t.step(2), t.width)
			dot := T(dotRow(y, dy))
			for k, p := range y {
				dx[k] = p * (dy[k] - dot)
			}
		}
	}
}
