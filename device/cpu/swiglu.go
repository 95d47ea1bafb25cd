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
	dst, gate, up unsafe.Pointer
}

func swiGLU[T float](q *queue, dst, gate, up device.Tensor) {
	same(dst, gate)
	same(dst, up)
	t := &blocks[T](q).swiGLU
	t.overElements(grain/4, dst, gate, up)
	t.dst, t.gate, t.up = dst.Pointer(), gate.Pointer(), up.Pointer()
	q.run(t.chunks(), t)
}

func (t *swiGLUTask[T]) do(_, i int) {
	var sigmoid, dstStaging, gateStaging, upStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		gate := gather(&gateStaging, t.gate, c.at[1], t.step(1), c.n)
		up := gather(&upStaging, t.up, c.at[2], t.step(2), c.n)
		s := sigmoid[:c.n]
		sigmoidRow(s, gate)
		gate, up, dst = gate[:len(s)], up[:len(s)], dst[:len(s)]
		for j, s := range s {
			dst[j] = gate[j] * s * up[j]
		}
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

type swiGLUBackwardTask[T float] struct {
	loop
	dgate, dup, gate, up, dy unsafe.Pointer
}

func swiGLUBackward[T float](q *queue, dgate, dup, gate, up, dy device.Tensor) {
	same(dy, dgate)
	same(dy, dup)
	same(dy, gate)
	same(dy, up)
	t := &blocks[T](q).swiGLUBackward
	t.overElements(grain/4, dgate, dup, gate, up, dy)
	t.dgate, t.dup = dgate.Pointer(), dup.Pointer()
	t.gate, t.up, t.dy = gate.Pointer(), up.Pointer(), dy.Pointer()
	q.run(t.chunks(), t)
}

func (t *swiGLUBackwardTask[T]) do(_, i int) {
	var sigmoid, dgateStaging, dupStaging, gateStaging, upStaging, dyStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		dgate := target(&dgateStaging, t.dgate, c.at[0], t.step(0), c.n)
		dup := target(&dupStaging, t.dup, c.at[1], t.step(1), c.n)
		gate := gather(&gateStaging, t.gate, c.at[2], t.step(2), c.n)
		up := gather(&upStaging, t.up, c.at[3], t.step(3), c.n)
		dy := gather(&dyStaging, t.dy, c.at[4], t.step(4), c.n)
		s := sigmoid[:c.n]
		sigmoidRow(s, gate)
		swiGLUBackwardRow(dgate, dup, gate, up, dy, s)
		scatter(dgate, t.dgate, c.at[0], t.step(0))
		scatter(dup, t.dup, c.at[1], t.step(1))
	}
}

// swiGLUBackwardRow uses silu′(g) = s·(1 + g·(1−s)) with s the sigmoid of g.
func swiGLUBackwardRow[T float](dgate, dup, gate, up, dy, sigmoid []T) {
	n := len(sigmoid)
	dgate, dup, gate, up, dy = dgate[:n], dup[:n], gate[:n], up[:n], dy[:n]
	for j, s := range sigmoid {
		g, d := gate[j], dy[j]
		u := up[j]
		dup[j] = d * (g * s)
		dgate[j] = d * u * (s * (1 + g*(1-s)))
	}
}
