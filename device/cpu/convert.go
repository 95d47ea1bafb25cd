package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// convert copies a row between different dtypes. Frequent pairs go directly,
// the others by way of float64, or int64 between integers.
func (t *copyTask) convert(c *cursor) {
	d, s := t.step(0), t.step(1)
	switch {
	case t.to == device.Float32 && t.from == device.Float64:
		convertRow[float32, float64](t, c)
	case t.to == device.Float64 && t.from == device.Float32:
		convertRow[float64, float32](t, c)
	case t.to == device.Float64 && t.from == device.Int64:
		convertRow[float64, int64](t, c) // toOdd would round twice
	case t.to == device.BFloat16 && t.from == device.Float32:
		if d == 1 && s == 1 {
			toBFloat16Row(slice[uint16](t.dst, c.at[0], c.n), slice[float32](t.src, c.at[1], c.n))
			return
		}
		for i := range c.n {
			*item[uint16](t.dst, c.at[0]+i*d) = bfloat16(*item[float32](t.src, c.at[1]+i*s))
		}
	case t.to == device.Float32 && t.from == device.BFloat16:
		if d == 1 && s == 1 {
			fromBFloat16Row(slice[float32](t.dst, c.at[0], c.n), slice[uint16](t.src, c.at[1], c.n))
			return
		}
		for i := range c.n {
			*item[float32](t.dst, c.at[0]+i*d) = fromBFloat16(*item[uint16](t.src, c.at[1]+i*s))
		}
	case t.to == device.Float16 && t.from == device.Float32:
		for i := range c.n {
			*item[uint16](t.dst, c.at[0]+i*d) = float16(*item[float32](t.src, c.at[1]+i*s))
		}
	case t.to == device.Float32 && t.from == device.Float16:
		for i := range c.n {
			*item[float32](t.dst, c.at[0]+i*d) = fromFloat16(*item[uint16](t.src, c.at[1]+i*s))
		}
	case !t.to.IsFloat() && !t.from.IsFloat():
		t.convertIntegers(c)
	default:
		t.convertStaged(c)
	}
}

func convertRow[D, S float32 | float64 | int64](t *copyTask, c *cursor) {
	d, s := t.step(0), t.step(1)
	for i := range c.n {
		*item[D](t.dst, c.at[0]+i*d) = D(*item[S](t.src, c.at[1]+i*s))
	}
}

// convertIntegers wraps around what does not fit.
func (t *copyTask) convertIntegers(c *cursor) {
	for i := range c.n {
		var v int64
		switch at := c.at[1] + i*t.step(1); t.from {
		case device.Int32:
			v = int64(*item[int32](t.src, at))
		case device.Int64:
			v = *item[int64](t.src, at)
		default:
			v = int64(*item[uint8](t.src, at))
		}
		store(t.to, t.dst, c.at[0]+i*t.step(0), v)
	}
}

// convertStaged reads all that float64 holds exactly, and of an int64 as much as
// keeps the second rounding right.
func (t *copyTask) convertStaged(c *cursor) {
	for i := range c.n {
		var v float64
		switch at := c.at[1] + i*t.step(1); t.from {
		case device.Float32:
			v = float64(*item[float32](t.src, at))
		case device.Float64:
			v = *item[float64](t.src, at)
		case device.BFloat16:
			v = float64(fromBFloat16(*item[uint16](t.src, at)))
		case device.Float16:
			v = float64(fromFloat16(*item[uint16](t.src, at)))
		case device.Int32:
			v = float64(*item[int32](t.src, at))
		case device.Int64:
			v = int64ToOdd(*item[int64](t.src, at))
		default:
			v = float64(*item[uint8](t.src, at))
		}
		switch at := c.at[0] + i*t.step(0); t.to {
		case device.Float32:
			*item[float32](t.dst, at) = float32(v)
		case device.Float64:
			*item[float64](t.dst, at) = v
		case device.BFloat16:
			*item[uint16](t.dst, at) = bfloat16(toOdd(v))
		case device.Float16:
			*item[uint16](t.dst, at) = float16(toOdd(v))
		default:
			store(t.to, t.dst, at, toInt(t.to, v))
		}
	}
}

func store(d device.DType, base unsafe.Pointer, at int, v int64) {
	switch d {
	case device.Int32:
		*item[int32](base, at) = int32(v)
	case device.Int64:
		*item[int64](base, at) = v
	default:
		*item[uint8](base, at) = uint8(v)
	}
}

// toInt rounds towards zero and keeps to the range of the dtype, where Go leaves
// the result to the processor; NaN gives 0.
func toInt(d device.DType, v float64) int64 {
	lo, hi := int64(0), int64(math.MaxUint8)
	switch d {
	case device.Int32:
		lo, hi = math.MinInt32, math.MaxInt32
	case device.Int64:
		lo, hi = math.MinInt64, math.MaxInt64
	}
	switch {
	case v != v:
		return 0
	case v <= float64(lo):
		return lo
	case v >= float64(hi):
		return hi
	}
	return int64(v)
}

// toOdd rounds to float32 so that rounding again to a shorter type gives what
// one rounding would have given: an inexact result takes the neighbour whose
// last bit is 1. (Boldo, Melquiond 2008.)
func toOdd(v float64) float32 {
	f := float32(v)
	if w := float64(f); w == v || v != v || math.IsInf(v, 0) {
		return f
	} else if b := math.Float32bits(f); b&1 == 0 {
		if math.Abs(w) > math.Abs(v) {
			b--
		} else {
			b++
		}
		return math.Float32frombits(b)
	}
	return f
}

// int64ToOdd is toOdd from int64 to float64.
func int64ToOdd(v int64) float64 {
	if v > -1<<53 && v < 1<<53 {
		return float64(v)
	}
	if v&0x7FF != 0 {
		v = v&^0x7FF | 0x800
	}
	return float64(v)
}

// bfloat16 rounds to the upper half of a float32, to nearest even.
func bfloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40 // stay NaN when the payload is cut off
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

func fromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

func toBFloat16Row(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = bfloat16(f)
	}
}

func fromBFloat16Row(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = fromBFloat16(h)
	}
}

// float16 rounds to IEEE 754 binary16, to nearest even.
func float16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7FFFFFFF
	switch {
	case b > 0x7F800000:
		return sign | 0x7E00 | uint16(b>>13&0x1FF)
	case b >= 0x47800000: // 2¹⁶ and above, where the rounding below ends at Inf by itself
		return sign | 0x7C00
	case b >= 0x38800000: // normal: 2⁻¹⁴ and above
		return sign | uint16((b-0x38000000+0xFFF+b>>13&1)>>13)
	}
	// Adding ½ puts the last bit of a subnormal, 2⁻²⁴, at the end of the mantissa.
	s := math.Float32frombits(b) + 0.5
	return sign | uint16(math.Float32bits(s)-math.Float32bits(0.5))
}

func fromFloat16(h uint16) float32 {
	sign, exponent, mantissa := uint32(h&0x8000)<<16, uint32(h>>10&0x1F), uint32(h&0x3FF)
	switch exponent {
	case 0:
		return math.Float32frombits(math.Float32bits(float32(mantissa)/(1<<24)) | sign)
	case 0x1F:
		return math.Float32frombits(sign | 0x7F800000 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | mantissa<<13)
}
