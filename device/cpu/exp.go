package cpu

import (
	"math"
	"unsafe"
)

// exp32 is eˣ to 1.3 units in the last place, with the reduction and the polynomial
// of Cephes (Moshier, expf): x = n·ln 2 + r, eˣ = 2ⁿ·p(r). The sum with
// roundToInteger leaves n in the low bits of its mantissa, which are then added to
// the exponent of p.
//
// Products are converted, which keeps the compiler from fusing them with sums: the
// bits are the same on every processor and those of the vector kernels.
func exp32(x float32) float32 {
	if !(x >= -exp32Normal && x <= exp32Normal) {
		return exp32Rare(x)
	}
	y, t := exp32Reduced(x)
	return math.Float32frombits(math.Float32bits(y) + t<<23)
}

// exp32Rare is eˣ where it may be no normal number. 2ⁿ is multiplied in two halves,
// each a normal number: the second product overflows to +Inf and rounds to subnormal
// numbers as it should. NaN passes both limits and comes out as NaN.
//
//go:noinline
func exp32Rare(x float32) float32 {
	if x < exp32Low {
		x = exp32Low
	}
	if x > exp32High {
		x = exp32High
	}
	y, t := exp32Reduced(x)
	k := int32(t) - roundToIntegerBits
	half := k >> 1
	return y * powerOf2(half) * powerOf2(k-half)
}

// exp32Reduced is p(r), and the number whose low bits are n.
func exp32Reduced(x float32) (y float32, t uint32) {
	s := float32(x*math.Log2E) + roundToInteger
	n := s - roundToInteger
	r := x - float32(n*ln2High) - float32(n*ln2Low)
	r2 := r * r
	p := (expC2 + float32(expC3*r)) + float32(r2*(expC4+float32(expC5*r)))
	p += float32(float32(r2*r2) * (expC6 + float32(expC7*r)))
	return (1 + r) + float32(p*r2), math.Float32bits(s)
}

// powerOf2 is 2ⁿ for a normal result.
func powerOf2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

const (
	exp32Normal = 86.5 // and less on either side, eˣ is normal whatever the rounding of n

	exp32Low  = -104 // and below, eˣ rounds to 0
	exp32High = 89   // and above, it is +Inf

	roundToInteger     = 3 << 22
	roundToIntegerBits = 0x4B400000
	ln2High            = 355.0 / 512 // its product with n is exact
	ln2Low             = -2.12194440e-4

	expC2 = 5.0000001201e-1
	expC3 = 1.6666665459e-1
	expC4 = 4.1665795894e-2
	expC5 = 8.3334519073e-3
	expC6 = 1.3981999507e-3
	expC7 = 1.9875691500e-4
)

// expRow computes dst = exp(scale·x + shift).
func expRow[T float](l level, dst, x []T, scale, shift T) {
	dst = dst[:len(x)]
	switch {
	case vectorized[T](l):
		expVector(l, asFloat32(dst), asFloat32(x), float32(scale), float32(shift))
	case single[T]():
		for i, v := range x {
			dst[i] = T(exp32(float32(T(scale*v) + shift)))
		}
	default:
		for i, v := range x {
			dst[i] = T(math.Exp(float64(T(scale*v) + shift)))
		}
	}
}

// sigmoidRow computes dst = 1 / (1 + exp(−x)).
func sigmoidRow[T float](l level, dst, x []T) {
	if vectorized[T](l) {
		sigmoidVector(l, asFloat32(dst)[:len(x)], asFloat32(x))
		return
	}
	expRow(l, dst, x, -1, 0)
	for i, e := range dst {
		dst[i] = 1 / (1 + e)
	}
}

func tanhRow[T float](l level, dst, x []T) {
	dst = dst[:len(x)]
	switch {
	case vectorized[T](l):
		tanhVector(l, asFloat32(dst), asFloat32(x))
	case single[T]():
		for i, v := range x {
			dst[i] = T(tanh32(float32(v)))
		}
	default:
		for i, v := range x {
			dst[i] = T(math.Tanh(float64(v)))
		}
	}
}

// tanh32 is tanh x to 3 units in the last place (Cephes, tanhf).
func tanh32(x float32) float32 {
	z := x * x
	if z < 0.625*0.625 {
		p := float32(-5.70498872745e-3*z) + 2.06390887954e-2
		p = float32(p*z) - 5.37397155531e-2
		p = float32(p*z) + 1.33314422036e-1
		p = float32(p*z) - 3.33332819422e-1
		return float32(p*z*x) + x
	}
	return 1 - 2/(exp32(x+x)+1)
}

// asFloat32 is x itself where T is known to be float32.
func asFloat32[T float](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}
