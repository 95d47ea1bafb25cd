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
	level level
	index uint64
	keys  [20]uint64
	device.Draw
}

// start lays the strides of the draw beside those of the operands.
func (d *draws) start(l level, perChunk int, draw *device.Draw, operands ...device.Tensor) {
	d.level, d.Draw = l, *draw
	d.setKeys()
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

// fill writes the draws of the iterations of c. There must be room for a multiple of 16.
func (d *draws) fill(draws []uint64, c *cursor) {
	o := d.operands - 1
	index, step := d.index+uint64(c.at[o]), uint64(d.step(o))
	if d.level == levelGo {
		for i := range draws {
			draws[i] = philox.Uint64(d.Key, index+uint64(i)*step, d.Step, d.Microbatch)
		}
		return
	}
	var starts [8]uint64 // as many as a register holds
	for i := range starts {
		starts[i] = index + uint64(i)*step
	}
	drawsVector(d.level, draws[:(len(draws)+15)&^15], starts[:], d.keys[:], step, uint64(d.Step), uint64(d.Microbatch))
}

// setKeys computes the keys of the rounds of Philox.
func (d *draws) setKeys() {
	k0, k1 := uint32(d.Key), uint32(d.Key>>32)
	for i := 0; i < len(d.keys); i += 2 {
		d.keys[i], d.keys[i+1] = uint64(k0), uint64(k1)
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
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
	t.start(q.dev.level, grain/16, draw, dst)
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
	t.start(q.dev.level, grain/8, draw, dst, x)
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
		dropoutRow(t.level, dst, x, words, t.keep, t.threshold)
		scatter(dst, t.dst, c.at[0], t.step(0))
	}
}

// dropoutRow computes dst = x/keep where the upper 53 bits of a draw reach the
// threshold, and 0 elsewhere.
func dropoutRow[T float](l level, dst, x []T, draws []uint64, keep T, threshold uint64) {
	if vectorized[T](l) {
		dropoutVector(l, asFloat32(dst), asFloat32(x), draws, float32(keep), threshold)
		return
	}
	dst, x = dst[:len(draws)], x[:len(draws)]
	for i, w := range draws {
		if w>>11 >= threshold {
			dst[i] = x[i] / keep
		} else {
			dst[i] = 0
		}
	}
}
