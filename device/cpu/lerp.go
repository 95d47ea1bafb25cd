package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) Lerp(dst, a, b device.Tensor, weight float64) {
	if isFloat32(dst) {
		lerp[float32](q, dst, a, b, weight)
	} else {
		lerp[float64](q, dst, a, b, weight)
	}
}

// lerpTask computes in float64 and rounds once, which costs nothing beside the memory
// traffic: a long average moves by little.
type lerpTask[T float] struct {
	loop
	level     level
	weight    float64
	dst, a, b unsafe.Pointer
}

func lerp[T float](q *queue, dst, a, b device.Tensor, weight float64) {
	same(dst, a)
	same(dst, b)
	t := &blocks[T](q).lerp
	t.overElements(grain, dst, a, b)
	t.level = q.dev.level
	t.weight, t.dst, t.a, t.b = weight, dst.Pointer(), a.Pointer(), b.Pointer()
	q.run(t.chunks(), t)
}

func (t *lerpTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		lerpRow(t.level, slice[T](t.dst, c.at[0], c.n), slice[T](t.a, c.at[1], c.n), slice[T](t.b, c.at[2], c.n), t.weight)
	}
}

func (t *lerpTask[T]) strided(i int) {
	var dstStaging, aStaging, bStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		a := gather(&aStaging, t.a, c.at[1], t.step(1), c.n)
		lerpRow(t.level, dst, a, gather(&bStaging, t.b, c.at[2], t.step(2), c.n), t.weight)
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

func lerpRow[T float](l level, dst, a, b []T, weight float64) {
	if vectorized[T](l) {
		lerpVector(l, asFloat32(dst), asFloat32(a), asFloat32(b), weight)
		return
	}
	n := len(dst)
	a, b = a[:n], b[:n]
	for i, x := range a {
		dst[i] = T(float64(x) + float64(weight*(float64(b[i])-float64(x))))
	}
}
