package devicetest

import "github.com/lethe-go/lethe/device"

// Floats returns a copy of a contiguous tensor of float32 or float64 on the host.
func Floats(t device.Tensor) []float64 {
	if t.DType() == device.Float64 {
		return append([]float64(nil), device.Elements[float64](t)...)
	}
	out := make([]float64, t.Len())
	for i, v := range device.Elements[float32](t) {
		out[i] = float64(v)
	}
	return out
}

// SetFloats writes values to a contiguous tensor of float32 or float64 on the host.
func SetFloats(t device.Tensor, values []float64) {
	for i, v := range values {
		SetFloat(t, i, v)
	}
}

// SetFloat writes v to element i of such a tensor.
func SetFloat(t device.Tensor, i int, v float64) {
	if t.DType() == device.Float64 {
		device.Elements[float64](t)[i] = v
	} else {
		device.Elements[float32](t)[i] = float32(v)
	}
}
