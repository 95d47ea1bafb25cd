package cpu

import (
	"math"
	"unsafe"
)

// exp32 is eˣ to 2 units in the last place, with the reduction and the
// polynomial of Cephes (Moshier, expf): x = n·ln 2 + r, eˣ = 2ⁿ·p(r). The sum
// with roundToInteger leaves n in the low bits of its mantissa, which are then
// added to the exponent of p.
func exp32(x float32) float32 {
	if !(x > exp32Low && x < exp32High) {
		return exp32Edge(x)
	}
	t := x*math.Log2E + roundToInteger
	n := t - roundToInteger
	r := x - n*ln2High - n*ln2Low
	r2 := r * r
	p := (expC2 + expC3*r) + r2*((expC4+expC5*r)+r2*(expC6+expC7*r))
	return math.Float32frombits(math.Float32bits((1+r)+p*r2) + math.Float32bits(t)<<23)
}

// Between the limits 2ⁿ·p(r) is a normal number whatever the rounding of n.
const (
	exp32Low  = -86.5
	exp32High = 88

	roundToInteger = 3 << 22
	ln2High        = 355.0 / 512 // its product with n is exact
	ln2Low         = -2.12194440e-4

	expC2 = 5.0000001201e-1
	expC3 = 1.6666665459e-1
	expC4 = 4.1665795894e-2
	expC5 = 8.3334519073e-3
	expC6 = 1.3981999507e-3
	expC7 = 1.9875691500e-4
)

// exp32Edge is eˣ where the result is zero, subnormal, near overflow or NaN.
//
//go:noinline
func exp32Edge(x float32) float32 {
	if x < -104 {
		return 0
	}
	return float32(math.Exp(float64(x)))
}

// expRow computes dst = exp(scale·x + shift).
func expRow[T float](dst, x []T, scale, shift T) {
	if single[T]() {
		expRow32(asFloat32(dst), asFloat32(x), float32(scale), float32(shift))
		return
	}
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = T(math.Exp(float64(scale*v + shift)))
	}
}

// expRow32 has the body of exp32, which is too long for the inliner.
func expRow32(dst, x []float32, scale, shift float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		v = scale*v + shift
		if !(v > exp32Low && v < exp32High) {
			dst[i] = exp32Edge(v)
			continue
		}
		t := v*math.Log2E + roundToInteger
		n := t - roundToInteger
		r := v - n*ln2High - n*ln2Low
		r2 := r * r
		p := (expC2 + expC3*r) + r2*((expC4+expC5*r)+r2*(expC6+expC7*r))
		dst[i] = math.Float32frombits(math.Float32bits((1+r)+p*r2) + math.Float32bits(t)<<23)
	}
}

// sigmoidRow computes dst = 1 / (1 + exp(−x)).
func sigmoidRow[T float](dst, x []T) {
	expRow(dst, x, -1, 0)
	for i, e := range dst {
		dst[i] = 1 / (1 + e)
	}
}

func tanhRow[T float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		if single[T]() {
			dst[i] = T(tanh32(float32(v)))
		} else {
			dst[i] = T(math.Tanh(float64(v)))
		}
	}
}

// tanh32 is tanh x (Cephes, tanhf).
func tanh32(x float32) float32 {
	z := x * x
	switch {
	case z < 0.625*0.625:
		p := (((-5.70498872745e-3*z+2.06390887954e-2)*z-5.37397155531e-2)*z+1.33314422036e-1)*z - 3.33332819422e-1
		return p*z*x + x
	case x > 9:
		return 1
	case x < -9:
		return -1
	}
	return 1 - 2/(exp32(2*x)+1)
}

// asFloat32 is x itself where T is known to be float32.
func asFloat32[T float](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}
