package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/philox"
)

// draws walks a tensor beside its index in the unsharded tensor.
type draws struct {
	loop  // the tensors, then the index
	index uint64
	device.Draw
}

// start lays the strides of the draw beside those of the operands.
func (d *draws) start(perChunk int, draw *device.Draw, operands ...device.Tensor) {
	d.Draw = *draw
	d.index = 0
	d.begin(len(operands) + 1)
	for dim := range operands[0].Rank() {
		n := operands[0].Dim(dim)
		var strides [maxOperands]int
		for o := range operands {
			if operands[o].Rank() != operands[0].Rank() || operands[o].Dim(dim) != n {
				panic("cpu: operands of unequal shapes")
			}
			strides[o] = operands[o].Stride(dim)
		}
		strides[len(operands)] = draw.Stride[dim]
		d.index += uint64(draw.Offset[dim] * draw.Stride[dim])
		d.dimension(n, &strides)
	}
	d.cut(perChunk)
}

// fill writes the draws of the iterations of c: philox.Uint64 for two elements
// at a time, whose multiplications overlap, with the keys of the rounds at hand.
func (d *draws) fill(draws []uint64, c *cursor) {
	o := d.operands - 1
	index, step := d.index+uint64(c.at[o]), uint64(d.step(o))
	var keys [10][2]uint32
	k0, k1 := uint32(d.Key), uint32(d.Key>>32)
	for i := range keys {
		keys[i] = [2]uint32{k0, k1}
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	for ; len(draws) >= 2; draws = draws[2:] {
		a0, a1, a2, a3 := uint32(index), uint32(index>>32), d.Step, d.Microbatch
		index += step
		b0, b1, b2, b3 := uint32(index), uint32(index>>32), d.Step, d.Microbatch
		index += step
		for _, k := range &keys {
			p, q := uint64(a0)*0xD2511F53, uint64(a2)*0xCD9E8D57
			a0, a1, a2, a3 = uint32(q>>32)^a1^k[0], uint32(q), uint32(p>>32)^a3^k[1], uint32(p)
			p, q = uint64(b0)*0xD2511F53, uint64(b2)*0xCD9E8D57
			b0, b1, b2, b3 = uint32(q>>32)^b1^k[0], uint32(q), uint32(p>>32)^b3^k[1], uint32(p)
		}
		draws[0] = uint64(a1)<<32 | uint64(a0)
		draws[1] = uint64(b1)<<32 | uint64(b0)
	}
	if len(draws) == 1 {
		draws[0] = philox.Uint64(d.Key, index, d.Step, d.Microbatch)
	}
}

func (q *queue) Random(dst device.Tensor, d device.Distribution, draw device.Draw) {
	if isFloat32(dst) {
		random[float32](q, dst, &d, &draw)
	} else {
		random[float64](q, dst, &d, &draw)
	}
}

type randomTask[T float] struct {
	draws
	device.Distribution
	dst unsafe.Pointer
}

func random[T float](q *queue, dst device.Tensor, d *device.Distribution, draw *device.Draw) {
	t := &blocks[T](q).random
	t.start(grain/16, draw, dst)
	t.Distribution, t.dst = *d, dst.Pointer()
	q.run(t.chunks(), t)
}

func (t *randomTask[T]) do(_, i int) {
	var draws [stagingLen]uint64
	var staging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		words := draws[:c.n]
		t.fill(words, &c)
		dst := target(&staging, t.dst, c.at[0], t.step(0), c.n)
		randomRow(dst, words, &t.Distribution)
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

// randomRow converts products explicitly, which keeps the compiler from fusing
// them with the sum: the numbers are the same on every processor.
func randomRow[T float](dst []T, draws []uint64, d *device.Distribution) {
	dst = dst[:len(draws)]
	switch d.Kind {
	case device.Uniform:
		for i, w := range draws {
			dst[i] = T(d.Low + float64((d.High-d.Low)*philox.Float64(w)))
		}
	case device.Normal:
		for i, w := range draws {
			dst[i] = T(d.Mean + float64(d.Std*philox.Normal(w)))
		}
	case device.TruncatedNormal:
		low, high := (d.Low-d.Mean)/d.Std, (d.High-d.Mean)/d.Std
		for i, w := range draws {
			v := d.Mean + float64(d.Std*philox.TruncatedNormal(w, low, high))
			dst[i] = T(min(max(v, d.Low), d.High))
		}
	default:
		panic("cpu: unknown distribution")
	}
}

func (q *queue) Dropout(dst, x device.Tensor, p float64, draw device.Draw) {
	if isFloat32(dst) {
		dropout[float32](q, dst, x, p, &draw)
	} else {
		dropout[float64](q, dst, x, p, &draw)
	}
}

type dropoutTask[T float] struct {
	draws
	dst, x    unsafe.Pointer
	keep      T      // 1 − p
	threshold uint64 // p·2⁵³, rounded up: draw ≥ p where its upper 53 bits reach it
}

func dropout[T float](q *queue, dst, x device.Tensor, p float64, draw *device.Draw) {
	same(dst, x)
	t := &blocks[T](q).dropout
	t.start(grain/8, draw, dst, x)
	t.dst, t.x = dst.Pointer(), x.Pointer()
	t.keep, t.threshold = T(1-p), uint64(math.Ceil(p*(1<<53)))
	q.run(t.chunks(), t)
}

func (t *dropoutTask[T]) do(_, i int) {
	var draws [stagingLen]uint64
	var dstStaging, xStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		words := draws[:c.n]
		t.fill(words, &c)
		dst := target(&dstStaging, t.dst, c.at[0], t.step(0), c.n)
		x := gather(&xStaging, t.x, c.at[1], t.step(1), c.n)
		dst, x = dst[:len(words)], x[:len(words)]
		for j, w := range words {
			if w>>11 >= t.threshold {
				dst[j] = x[j] / t.keep
			} else {
				dst[j] = 0
			}
		}
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}
