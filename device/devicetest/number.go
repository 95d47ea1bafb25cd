package devicetest

import (
	"encoding/binary"
	"math"

	"github.com/lethe-go/lethe/device"
)

// putNumber stores v, rounded to the dtype, and returns what was stored.
func putNumber(d device.DType, b []byte, v float64) float64 {
	le := binary.NativeEndian
	switch d {
	case device.Float32:
		le.PutUint32(b, math.Float32bits(float32(v)))
	case device.Float64:
		le.PutUint64(b, math.Float64bits(v))
	case device.Int32:
		le.PutUint32(b, uint32(int32(v)))
	case device.Int64:
		le.PutUint64(b, uint64(int64(v)))
	case device.Uint8:
		b[0] = uint8(v)
	default: // the bits of a 16-bit float
		le.PutUint16(b, uint16(v))
	}
	return getNumber(d, b)
}

// getNumber loads a number of any dtype.
func getNumber(d device.DType, b []byte) float64 {
	le := binary.NativeEndian
	switch d {
	case device.Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case device.Float64:
		return math.Float64frombits(le.Uint64(b))
	case device.BFloat16:
		return decode(le.Uint16(b), 8)
	case device.Float16:
		return decode(le.Uint16(b), 5)
	case device.Int32:
		return float64(int32(le.Uint32(b)))
	case device.Int64:
		return float64(int64(le.Uint64(b)))
	}
	return float64(b[0])
}

// decode reads a 16-bit float with that many bits of exponent.
func decode(bits uint16, exponentBits int) float64 {
	mantissaBits := 15 - exponentBits
	mantissa := float64(bits & (1<<mantissaBits - 1))
	exponent := int(bits>>mantissaBits) & (1<<exponentBits - 1)
	bias := 1<<(exponentBits-1) - 1
	var v float64
	switch {
	case exponent == 0:
		v = math.Ldexp(mantissa, 1-bias-mantissaBits)
	case exponent == 1<<exponentBits-1 && mantissa == 0:
		v = math.Inf(1)
	case exponent == 1<<exponentBits-1:
		return math.NaN()
	default:
		v = math.Ldexp(mantissa+float64(int(1)<<mantissaBits), exponent-bias-mantissaBits)
	}
	if bits>>15 != 0 {
		return math.Copysign(v, -1)
	}
	return v
}

// roundTo rounds v to a float dtype, to nearest even.
func roundTo(d device.DType, v float64) float64 {
	precision, lowest, highest := 53, -1074, 1024
	switch d {
	case device.Float32:
		precision, lowest, highest = 24, -149, 128
	case device.BFloat16:
		precision, lowest, highest = 8, -133, 128
	case device.Float16:
		precision, lowest, highest = 11, -24, 16
	}
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	_, exponent := math.Frexp(v)
	unit := max(exponent-precision, lowest)
	r := math.Ldexp(math.RoundToEven(math.Ldexp(v, -unit)), unit)
	if math.Abs(r) >= math.Ldexp(1, highest) {
		return math.Copysign(math.Inf(1), v)
	}
	return math.Copysign(r, v)
}
