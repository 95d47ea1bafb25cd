package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) Unary(f device.UnaryFunc, dst, x device.Tensor) {
	if isFloat32(dst) {
		unary[float32](q, f, dst, x)
	} else {
		unary[float64](q, f, dst, x)
	}
}

func (q *queue) Binary(f device.BinaryFunc, dst, a, b device.Tensor) {
	if isFloat32(dst) {
		binary[float32](q, f, dst, a, b)
	} else {
		binary[float64](q, f, dst, a, b)
	}
}

func (q *queue) AddScaled(dst, a, b device.Tensor, alpha float64) {
	if isFloat32(dst) {
		addScaled[float32](q, dst, a, b, alpha)
	} else {
		addScaled[float64](q, dst, a, b, alpha)
	}
}

type unaryTask[T float] struct {
	loop
	f      device.UnaryFunc
	dst, x unsafe.Pointer
}

func unary[T float](q *queue, f device.UnaryFunc, dst, x device.Tensor) {
	same(dst, x)
	t := &blocks[T](q).unary
	n := grain
	if f != device.Neg && f != device.Square {
		n /= 4
	}
	t.overElements(n, dst, x)
	t.f, t.dst, t.x = f, dst.Pointer(), x.Pointer()
	q.run(t.chunks(), t)
}

func (t *unaryTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		unaryRow(t.f, slice[T](t.dst, c.at[0], c.n), slice[T](t.x, c.at[1], c.n))
	}
}

func (t *unaryTask[T]) strided(i int) {
	var dstStaging, xStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		unaryRow(t.f, dst, gather(&xStaging, t.x, c.at[1], t.step(1), c.n))
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

func unaryRow[T float](f device.UnaryFunc, dst, x []T) {
	dst = dst[:len(x)]
	switch f {
	case device.Neg:
		for i, v := range x {
			dst[i] = -v
		}
	case device.Exp:
		expRow(dst, x, 1, 0)
	case device.Log:
		for i, v := range x {
			dst[i] = T(math.Log(float64(v)))
		}
	case device.Sqrt:
		for i, v := range x {
			dst[i] = T(math.Sqrt(float64(v)))
		}
	case device.Square:
		for i, v := range x {
			dst[i] = v * v
		}
	case device.Inverse:
		for i, v := range x {
			dst[i] = 1 / v
		}
	case device.Sigmoid:
		sigmoidRow(dst, x)
	case device.Tanh:
		tanhRow(dst, x)
	default:
		panic("cpu: unknown unary function")
	}
}

type binaryTask[T float] struct {
	loop
	f         device.BinaryFunc
	dst, a, b unsafe.Pointer
}

func binary[T float](q *queue, f device.BinaryFunc, dst, a, b device.Tensor) {
	same(dst, a)
	same(dst, b)
	t := &blocks[T](q).binary
	t.overElements(grain, dst, a, b)
	t.f, t.dst, t.a, t.b = f, dst.Pointer(), a.Pointer(), b.Pointer()
	q.run(t.chunks(), t)
}

func (t *binaryTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		binaryRow(t.f, slice[T](t.dst, c.at[0], c.n), slice[T](t.a, c.at[1], c.n), slice[T](t.b, c.at[2], c.n))
	}
}

func (t *binaryTask[T]) strided(i int) {
	var dstStaging, aStaging, bStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		a := gather(&aStaging, t.a, c.at[1], t.step(1), c.n)
		b := gather(&bStaging, t.b, c.at[2], t.step(2), c.n)
		binaryRow(t.f, dst, a, b)
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

func binaryRow[T float](f device.BinaryFunc, dst, a, b []T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	switch f {
	case device.Add:
		addScaledRow(dst, a, b, 1)
	case device.Sub:
		addScaledRow(dst, a, b, -1)
	case device.Mul:
		i := 0
		for ; i <= n-4; i += 4 {
			d, x, y := (*[4]T)(dst[i:]), (*[4]T)(a[i:]), (*[4]T)(b[i:])
			d[0] = x[0] * y[0]
			d[1] = x[1] * y[1]
			d[2] = x[2] * y[2]
			d[3] = x[3] * y[3]
		}
		for ; i < n; i++ {
			dst[i] = a[i] * b[i]
		}
	case device.Div:
		for i := range dst {
			dst[i] = a[i] / b[i]
		}
	case device.Maximum:
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	default:
		panic("cpu: unknown binary function")
	}
}

type addScaledTask[T float] struct {
	loop
	alpha     T
	dst, a, b unsafe.Pointer
}

func addScaled[T float](q *queue, dst, a, b device.Tensor, alpha float64) {
	same(dst, a)
	same(dst, b)
	t := &blocks[T](q).addScaled
	t.overElements(grain, dst, a, b)
	t.alpha, t.dst, t.a, t.b = T(alpha), dst.Pointer(), a.Pointer(), b.Pointer()
	q.run(t.chunks(), t)
}

func (t *addScaledTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		addScaledRow(slice[T](t.dst, c.at[0], c.n), slice[T](t.a, c.at[1], c.n), slice[T](t.b, c.at[2], c.n), t.alpha)
	}
}

func (t *addScaledTask[T]) strided(i int) {
	var dstStaging, aStaging, bStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		a := gather(&aStaging, t.a, c.at[1], t.step(1), c.n)
		b := gather(&bStaging, t.b, c.at[2], t.step(2), c.n)
		addScaledRow(dst, a, b, t.alpha)
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

// addScaledRow is also the sum and the difference: a product with ±1 is exact.
func addScaledRow[T float](dst, a, b []T, alpha T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	i := 0
	for ; i <= n-4; i += 4 {
		d, x, y := (*[4]T)(dst[i:]), (*[4]T)(a[i:]), (*[4]T)(b[i:])
		d[0] = x[0] + alpha*y[0]
		d[1] = x[1] + alpha*y[1]
		d[2] = x[2] + alpha*y[2]
		d[3] = x[3] + alpha*y[3]
	}
	for ; i < n; i++ {
		dst[i] = a[i] + alpha*b[i]
	}
}
