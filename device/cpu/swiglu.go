package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) SwiGLU(dst, gate, up device.Tensor) {
	if isFloat32(dst) {
		swiGLU[float32](q, dst, gate, up)
	} else {
		swiGLU[float64](q, dst, gate, up)
	}
}

func (q *queue) SwiGLUBackward(dgate, dup, gate, up, dy device.Tensor) {
	if isFloat32(dy) {
		swiGLUBackward[float32](q, dgate, dup, gate, up, dy)
	} else {
		swiGLUBackward[float64](q, dgate, dup, gate, up, dy)
	}
}

type swiGLUTask[T float] struct {
	loop
	level         level
	dst, gate, up unsafe.Pointer
}

func swiGLU[T float](q *queue, dst, gate, up device.Tensor) {
	same(dst, gate)
	same(dst, up)
	t := &blocks[T](q).swiGLU
	t.overElements(grain/4, dst, gate, up)
	t.level = q.dev.level
	t.dst, t.gate, t.up = dst.Pointer(), gate.Pointer(), up.Pointer()
	q.run(t.chunks(), t)
}

func (t *swiGLUTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		swiGLURow(t.level, slice[T](t.dst, c.at[0], c.n), slice[T](t.gate, c.at[1], c.n), slice[T](t.up, c.at[2], c.n))
	}
}

func (t *swiGLUTask[T]) strided(i int) {
	var dstStaging, gateStaging, upStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		gate := gather(&gateStaging, t.gate, c.at[1], t.step(1), c.n)
		swiGLURow(t.level, dst, gate, gather(&upStaging, t.up, c.at[2], t.step(2), c.n))
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

// swiGLURow computes dst = silu(gate)·up, with silu(g) = g·sigmoid(g).
func swiGLURow[T float](l level, dst, gate, up []T) {
	if vectorized[T](l) {
		swiGLUVector(l, asFloat32(dst), asFloat32(gate), asFloat32(up))
		return
	}
	var sigmoid [stagingLen]T
	for n := 0; len(dst) > 0; dst, gate, up = dst[n:], gate[n:], up[n:] {
		n = min(len(dst), stagingLen)
		sigmoidRow(l, sigmoid[:n], gate[:n])
		for i, s := range sigmoid[:n] {
			dst[i] = gate[i] * s * up[i]
		}
	}
}

type swiGLUBackwardTask[T float] struct {
	loop
	level                    level
	dgate, dup, gate, up, dy unsafe.Pointer
}

func swiGLUBackward[T float](q *queue, dgate, dup, gate, up, dy device.Tensor) {
	same(dy, dgate)
	same(dy, dup)
	same(dy, gate)
	same(dy, up)
	t := &blocks[T](q).swiGLUBackward
	t.overElements(grain/4, dgate, dup, gate, up, dy)
	t.level = q.dev.level
	t.dgate, t.dup = dgate.Pointer(), dup.Pointer()
	t.gate, t.up, t.dy = gate.Pointer(), up.Pointer(), dy.Pointer()
	q.run(t.chunks(), t)
}

func (t *swiGLUBackwardTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		swiGLUBackwardRow(t.level, slice[T](t.dgate, c.at[0], c.n), slice[T](t.dup, c.at[1], c.n),
			slice[T](t.gate, c.at[2], c.n), slice[T](t.up, c.at[3], c.n), slice[T](t.dy, c.at[4], c.n))
	}
}

func (t *swiGLUBackwardTask[T]) strided(i int) {
	var dgateStaging, dupStaging, gateStaging, upStaging, dyStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dgate := target(&dgateStaging, t.dgate, c.at[0], t.step(0), c.n)
		dup := target(&dupStaging, t.dup, c.at[1], t.step(1), c.n)
		gate := gather(&gateStaging, t.gate, c.at[2], t.step(2), c.n)
		up := gather(&upStaging, t.up, c.at[3], t.step(3), c.n)
		swiGLUBackwardRow(t.level, dgate, dup, gate, up, gather(&dyStaging, t.dy, c.at[4], t.step(4), c.n))
		scatter(dgate, t.dgate, c.at[0], t.step(0))
		scatter(dup, t.dup, c.at[1], t.step(1))
	}
}

// swiGLUBackwardRow uses silu′(g) = s·(1 + g·(1−s)) with s the sigmoid of g.
func swiGLUBackwardRow[T float](l level, dgate, dup, gate, up, dy []T) {
	if vectorized[T](l) {
		swiGLUBackwardVector(l, asFloat32(dgate), asFloat32(dup), asFloat32(gate), asFloat32(up), asFloat32(dy))
		return
	}
	var sigmoid [stagingLen]T
	for first := 0; first < len(gate); first += stagingLen {
		n := min(len(gate)-first, stagingLen)
		sigmoidRow(l, sigmoid[:n], gate[first:first+n])
		for i, s := range sigmoid[:n] {
			i += first
			g, d, u := gate[i], dy[i], up[i]
			dup[i] = d * (g * s)
			dgate[i] = d * u * (s * (1 + T(g*(1-s))))
		}
	}
}
