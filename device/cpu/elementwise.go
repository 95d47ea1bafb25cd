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
	level  level
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
	t.level = q.dev.level
	t.f, t.dst, t.x = f, dst.Pointer(), x.Pointer()
	q.run(t.chunks(), t)
}

func (t *unaryTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		unaryRow(t.level, t.f, slice[T](t.dst, c.at[0], c.n), slice[T](t.x, c.at[1], c.n))
	}
}

func (t *unaryTask[T]) strided(i int) {
	var dstStaging, xStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		unaryRow(t.level, t.f, dst, gather(&xStaging, t.x, c.at[1], t.step(1), c.n))
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

func unaryRow[T float](l level, f device.UnaryFunc, dst, x []T) {
	dst = dst[:len(x)]
	switch f {
	case device.Neg:
		scaledRow(l, dst, x, -1)
	case device.Exp:
		expRow(l, dst, x, 1, 0)
	case device.Log:
		for i, v := range x {
			dst[i] = T(math.Log(float64(v)))
		}
	case device.Sqrt:
		if vectorized[T](l) {
			sqrtVector(l, asFloat32(dst), asFloat32(x))
			return
		}
		for i, v := range x {
			dst[i] = T(math.Sqrt(float64(v)))
		}
	case device.Square:
		if vectorized[T](l) {
			squareVector(l, asFloat32(dst), asFloat32(x))
			return
		}
		for i, v := range x {
			dst[i] = v * v
		}
	case device.Inverse:
		if vectorized[T](l) {
			inverseVector(l, asFloat32(dst), asFloat32(x))
			return
		}
		for i, v := range x {
			dst[i] = 1 / v
		}
	case device.Sigmoid:
		sigmoidRow(l, dst, x)
	case device.Tanh:
		tanhRow(l, dst, x)
	default:
		panic("cpu: unknown unary function")
	}
}

type binaryTask[T float] struct {
	loop
	level     level
	f         device.BinaryFunc
	dst, a, b unsafe.Pointer
}

func binary[T float](q *queue, f device.BinaryFunc, dst, a, b device.Tensor) {
	same(dst, a)
	same(dst, b)
	t := &blocks[T](q).binary
	t.overElements(grain, dst, a, b)
	t.level = q.dev.level
	t.f, t.dst, t.a, t.b = f, dst.Pointer(), a.Pointer(), b.Pointer()
	q.run(t.chunks(), t)
}

func (t *binaryTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		binaryRow(t.level, t.f, slice[T](t.dst, c.at[0], c.n), slice[T](t.a, c.at[1], c.n), slice[T](t.b, c.at[2], c.n))
	}
}

func (t *binaryTask[T]) strided(i int) {
	var dstStaging, aStaging, bStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		a := gather(&aStaging, t.a, c.at[1], t.step(1), c.n)
		b := gather(&bStaging, t.b, c.at[2], t.step(2), c.n)
		binaryRow(t.level, t.f, dst, a, b)
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

func binaryRow[T float](l level, f device.BinaryFunc, dst, a, b []T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	switch f {
	case device.Add:
		addScaledRow(l, dst, a, b, 1)
	case device.Sub:
		addScaledRow(l, dst, a, b, -1)
	case device.Mul:
		if vectorized[T](l) {
			mulVector(l, asFloat32(dst), asFloat32(a), asFloat32(b))
			return
		}
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	case device.Div:
		if vectorized[T](l) {
			divVector(l, asFloat32(dst), asFloat32(a), asFloat32(b))
			return
		}
		for i := range dst {
			dst[i] = a[i] / b[i]
		}
	case device.Maximum:
		if vectorized[T](l) {
			greaterVector(l, asFloat32(dst), asFloat32(a), asFloat32(b))
			return
		}
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	default:
		panic("cpu: unknown binary function")
	}
}

type addScaledTask[T float] struct {
	loop
	level     level
	alpha     T
	dst, a, b unsafe.Pointer
}

func addScaled[T float](q *queue, dst, a, b device.Tensor, alpha float64) {
	same(dst, a)
	same(dst, b)
	t := &blocks[T](q).addScaled
	t.overElements(grain, dst, a, b)
	t.level = q.dev.level
	t.alpha, t.dst, t.a, t.b = T(alpha), dst.Pointer(), a.Pointer(), b.Pointer()
	q.run(t.chunks(), t)
}

func (t *addScaledTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		addScaledRow(t.level, slice[T](t.dst, c.at[0], c.n), slice[T](t.a, c.at[1], c.n), slice[T](t.b, c.at[2], c.n), t.alpha)
	}
}

func (t *addScaledTask[T]) strided(i int) {
	var dstStaging, aStaging, bStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		a := gather(&aStaging, t.a, c.at[1], t.step(1), c.n)
		b := gather(&bStaging, t.b, c.at[2], t.step(2), c.n)
		addScaledRow(t.level, dst, a, b, t.alpha)
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

// addScaledRow is also the sum and the difference: a product with ±1 is exact.
func addScaledRow[T float](l level, dst, a, b []T, alpha T) {
	if vectorized[T](l) {
		addScaledVector(l, asFloat32(dst), asFloat32(a), asFloat32(b), float32(alpha))
		return
	}
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + T(alpha*b[i])
	}
}

// scaledRow computes dst = alpha·x.
func scaledRow[T float](l level, dst, x []T, alpha T) {
	if vectorized[T](l) {
		scaledVector(l, asFloat32(dst), asFloat32(x), float32(alpha))
		return
	}
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = alpha * x[i]
	}
}
