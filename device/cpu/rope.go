package cpu

import (
	"fmt"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) RoPE(dst, x, cos, sin, positions device.Tensor, layout device.RoPELayout, inverse bool) {
	if isFloat32(dst) {
		rope[float32](q, dst, x, cos, sin, positions, layout, inverse)
	} else {
		rope[float64](q, dst, x, cos, sin, positions, layout, inverse)
	}
}

// ropeTask's iterations are the tokens; all heads of one share its angles.
type ropeTask[T float] struct {
	loop                                     // dst, x, positions
	level                                    level
	dst, x, cos, sin, positions              unsafe.Pointer
	heads, width, pairs                      int
	dstHead, xHead, cosPosition, sinPosition int // strides
	sign                                     T
	layout                                   device.RoPELayout
}

func rope[T float](q *queue, dst, x, cos, sin, positions device.Tensor, layout device.RoPELayout, inverse bool) {
	same(dst, x)
	same(dst, cos)
	same(dst, sin)
	t := &blocks[T](q).rope
	t.heads, t.width, t.pairs = x.Dim(2), x.Dim(3), cos.Dim(1)
	switch {
	case dst.Dim(2) != t.heads || dst.Dim(3) != t.width || 2*t.pairs > t.width || sin.Dim(1) != t.pairs || sin.Dim(0) != cos.Dim(0):
		panic("cpu: rope of unequal shapes")
	case t.width > 1 && (dst.Stride(3) != 1 || x.Stride(3) != 1) || t.pairs > 1 && (cos.Stride(1) != 1 || sin.Stride(1) != 1):
		panic("cpu: last dimension is not contiguous")
	}
	t.over(max(1, grain/2/max(1, t.heads*t.width)), 2, dst, x, positions)
	t.dst, t.x, t.positions = dst.Pointer(), x.Pointer(), positions.Pointer()
	t.cos, t.sin = cos.Pointer(), sin.Pointer()
	t.dstHead, t.xHead = dst.Stride(2), x.Stride(2)
	t.cosPosition, t.sinPosition = cos.Stride(0), sin.Stride(0)
	t.level, t.layout, t.sign = q.dev.level, layout, 1
	if inverse {
		t.sign = -1
	}
	if p, i, ok := t.within(2, t.positions, cos.Dim(0)); !ok {
		q.fail(fmt.Errorf("rope: position %d at index %d is outside [0, %d)", p, i, cos.Dim(0)))
		return
	}
	q.run(t.chunks(), t)
}

func (t *ropeTask[T]) do(_, i int) {
	for c := t.chunk(i); c.next(); {
		for j := range c.n {
			p := int(*item[int32](t.positions, c.at[2]+j*t.step(2)))
			cos := slice[T](t.cos, p*t.cosPosition, t.pairs)
			sin := slice[T](t.sin, p*t.sinPosition, t.pairs)
			dst, x := c.at[0]+j*t.step(0), c.at[1]+j*t.step(1)
			t.token(slice[T](t.dst, dst, t.span(t.dstHead)), slice[T](t.x, x, t.span(t.xHead)), cos, sin)
		}
	}
}

// span is how many elements all heads of a token lie in.
func (t *ropeTask[T]) span(head int) int {
	if t.heads == 0 {
		return 0
	}
	return (t.heads-1)*head + t.width
}

// token rotates the first pairs of every head and copies the rest of it.
func (t *ropeTask[T]) token(dst, x, cos, sin []T) {
	rotateHeads(t.level, t.layout, dst, x, cos, sin, t.heads, t.dstHead, t.xHead, t.sign)
	if n := 2 * t.pairs; n < t.width {
		for head := range t.heads {
			copy(dst[head*t.dstHead:][n:t.width], x[head*t.xHead:][n:t.width])
		}
	}
}

func rotateHeads[T float](l level, layout device.RoPELayout, dst, x, cos, sin []T, heads, dstHead, xHead int, sign T) {
	switch {
	case heads == 0:
	case vectorized[T](l) && layout == device.AdjacentPairs:
		ropeAdjacentVector(l, asFloat32(cos), asFloat32(sin), asFloat32(dst), asFloat32(x), heads, dstHead, xHead, float32(sign))
	case vectorized[T](l):
		ropeHalvesVector(l, asFloat32(cos), asFloat32(sin), asFloat32(dst), asFloat32(x), heads, dstHead, xHead, float32(sign))
	case layout == device.AdjacentPairs:
		for head := range heads {
			rotateAdjacent(dst[head*dstHead:], x[head*xHead:], cos, sin, sign)
		}
	default:
		for head := range heads {
			rotateHalves(dst[head*dstHead:], x[head*xHead:], cos, sin, sign)
		}
	}
}

func rotateAdjacent[T float](dst, x, cos, sin []T, sign T) {
	sin = sin[:len(cos)]
	for i, c := range cos {
		d, p, s := (*[2]T)(dst[2*i:]), (*[2]T)(x[2*i:]), sign*sin[i]
		a, b := p[0], p[1]
		d[0] = T(a*c) - T(b*s)
		d[1] = T(a*s) + T(b*c)
	}
}

func rotateHalves[T float](dst, x, cos, sin []T, sign T) {
	n := len(cos)
	sin = sin[:n]
	x0, x1, dst0, dst1 := x[:n], x[n:][:n], dst[:n], dst[n:][:n]
	for i, c := range cos {
		a, b, s := x0[i], x1[i], sign*sin[i]
		dst0[i] = T(a*c) - T(b*s)
		dst1[i] = T(a*s) + T(b*c)
	}
}
