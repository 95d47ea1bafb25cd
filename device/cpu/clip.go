package cpu

// This file holds what clipping gradients by their global norm takes.

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) SumSquares(dst, x device.Tensor) {
	if isFloat32(x) {
		sumSquares[float32](q, dst, x)
	} else {
		sumSquares[float64](q, dst, x)
	}
}

// maxCounts is the number of partial results that a task block has room for.
const maxCounts = 256

type sumSquaresTask[T float] struct {
	level    level
	x        []T
	part     int // elements
	partials [maxCounts]float64
}

func sumSquares[T float](q *queue, dst, x device.Tensor) {
	t := &blocks[T](q).sumSquares
	t.level = q.dev.level
	t.x = elements[T](x)
	n := len(t.x)
	t.part = max(grain, (n+maxCounts-1)/maxCounts)
	parts := (n + t.part - 1) / t.part
	q.run(parts, t)
	s := 0.0
	for _, p := range t.partials[:parts] {
		s += p
	}
	elements[float64](dst)[0] = s
	t.x = nil
}

func (t *sumSquaresTask[T]) do(_, i int) {
	x := t.x[i*t.part : min((i+1)*t.part, len(t.x))]
	t.partials[i] = dotRow(t.level, x, x)
}

func (q *queue) CountNonFinite(dst, x device.Tensor) {
	t := &q.bytes.nonFinite
	t.overElements(grain, x)
	t.x, t.dtype = x.Pointer(), x.DType()
	count := elements[int32](dst)
	for first := 0; first < t.chunks(); first += maxCounts {
		t.first = first
		n := min(maxCounts, t.chunks()-first)
		q.run(n, t)
		for _, c := range t.counts[:n] {
			count[0] += c
		}
	}
}

type nonFiniteTask struct {
	loop
	x      unsafe.Pointer
	dtype  device.DType
	first  int
	counts [maxCounts]int32
}

func (t *nonFiniteTask) do(_, i int) {
	count := 0
	for c := t.chunk(t.first + i); c.next(); {
		switch t.dtype {
		case device.Float32:
			count += countAbove[uint32](t.x, c.at[0], t.step(0), c.n, 0x7F800000)
		case device.Float64:
			count += countAbove[uint64](t.x, c.at[0], t.step(0), c.n, 0x7FF0000000000000)
		case device.BFloat16:
			count += countAbove[uint16](t.x, c.at[0], t.step(0), c.n, 0x7F80)
		case device.Float16:
			count += countAbove[uint16](t.x, c.at[0], t.step(0), c.n, 0x7C00)
		}
	}
	t.counts[i] = int32(count)
}

// countAbove counts elements whose bits without the sign are at least inf's:
// ±Inf and NaN.
func countAbove[E uint16 | uint32 | uint64](base unsafe.Pointer, at, step, n int, inf E) int {
	count := 0
	if step == 1 {
		for _, x := range slice[E](base, at, n) {
			if x&inf == inf {
				count++
			}
		}
		return count
	}
	for i := range n {
		if *item[E](base, at+i*step)&inf == inf {
			count++
		}
	}
	return count
}

func (q *queue) ClipFactor(dst, norm device.Tensor, max float64) {
	storeScalar(dst, min(1, max/(loadScalar(norm)+1e-6)))
}

// loadScalar reads a float32 or float64.
func loadScalar(t device.Tensor) float64 {
	if isFloat32(t) {
		return float64(*(*float32)(t.Pointer()))
	}
	return *(*float64)(t.Pointer())
}

func storeScalar(t device.Tensor, v float64) {
	if isFloat32(t) {
		*(*float32)(t.Pointer()) = float32(v)
	} else {
		*(*float64)(t.Pointer()) = v
	}
}
