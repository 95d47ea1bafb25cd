package devicetest

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"github.com/lethe-go/lethe/device"
)

var floats = []device.DType{device.Float32, device.Float64, device.BFloat16, device.Float16}

func testConversions(t *testing.T, d device.Device) {
	q := d.NewQueue()
	defer q.Close()
	convert := func(t *testing.T, to, from device.DType, values, want func(c *scene) []float64) {
		c := newScene(t, d, q, from, seed)
		defer c.free()
		v := values(c)
		n := len(v) / 4
		src, dst := c.inputOf(from, anyStrides, v[:4*n], 4, n), c.outputOf(to, anyStrides, 4, n)
		c.commit()
		q.Copy(dst.Tensor, src.Tensor)
		c.verify()
		c.close(dst, want(&scene{operands: []*operand{src}}), nil, 0)
	}
	for _, from := range floats {
		for _, to := range floats {
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				convert(t, to, from, func(c *scene) []float64 { return floatsToConvert(c, from, to) },
					func(c *scene) []float64 {
						return mapped(func(x ...float64) float64 { return roundTo(to, x[0]) }, c.operands[0])
					})
			})
		}
		for _, integer := range []device.DType{device.Int32, device.Int64, device.Uint8} {
			t.Run(from.String()+" to "+integer.String(), func(t *testing.T) {
				convert(t, integer, from, func(*scene) []float64 { return bitsOf(from, 0, 0.5, 1, 1.75, 2, 100, 37, 127) },
					func(c *scene) []float64 {
						return mapped(func(x ...float64) float64 { return math.Trunc(x[0]) }, c.operands[0])
					})
			})
			t.Run(integer.String()+" to "+from.String(), func(t *testing.T) {
				convert(t, from, integer, func(*scene) []float64 { return []float64{0, 1, 2, 3, 100, 254, 255, 17} },
					func(c *scene) []float64 { return c.operands[0].values })
			})
		}
	}
	t.Run("large integers", func(t *testing.T) { testLargeIntegers(t, d, q) })
	t.Run("fill", func(t *testing.T) { testFill(t, d, q) })
}

// floatsToConvert returns all 16-bit floats, or numbers around those of the
// destination and halfway between them.
func floatsToConvert(c *scene, from, to device.DType) []float64 {
	var v []float64
	if from.Size() == 2 {
		for bits := range 1 << 16 {
			v = append(v, float64(bits))
		}
		return v
	}
	exponentBits := 8
	if to == device.Float16 {
		exponentBits = 5
	}
	for bits := range 1<<16 - 1 {
		a, b := decode(uint16(bits), exponentBits), decode(uint16(bits+1), exponentBits)
		v = append(v, a, (a+b)/2, math.Nextafter((a+b)/2, a), math.Nextafter((a+b)/2, b))
		if from == device.Float32 {
			half := float32((a + b) / 2)
			v = append(v, float64(math.Nextafter32(half, float32(a))), float64(math.Nextafter32(half, float32(b))))
		}
	}
	v = append(v, math.MaxFloat32, -math.MaxFloat32, math.MaxFloat64, math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat64)
	for range 10000 {
		v = append(v, c.rand.NormFloat64()*math.Exp(20*c.rand.NormFloat64()))
	}
	return v
}

// bitsOf returns numbers as inputOf takes them: 16-bit floats as their bits.
func bitsOf(d device.DType, values ...float64) []float64 {
	if d.Size() != 2 {
		return values
	}
	exponentBits := 8
	if d == device.Float16 {
		exponentBits = 5
	}
	for i, v := range values {
		for bits := range 1 << 15 {
			if decode(uint16(bits), exponentBits) == v {
				values[i] = float64(bits)
			}
		}
	}
	return values
}

// testLargeIntegers tests integers that no float64 holds, which must be rounded
// only once.
func testLargeIntegers(t *testing.T, d device.Device, q device.Queue) {
	c := newScene(t, d, q, device.Int64, seed)
	defer c.free()
	values := []int64{math.MaxInt64, math.MinInt64, 1<<53 + 1, -(1<<53 + 3), 1<<62 + 1<<54, 1<<62 + 1<<54 + 1, 1<<62 + 1<<38 + 1, 1<<62 + 3<<38}
	for range 1000 {
		values = append(values, int64(c.rand.Uint64())>>c.rand.IntN(60))
	}
	n := len(values)
	src := c.place(device.Int64, contiguous, n)
	copy(src.bytes[src.Offset():], int64Bytes(values))
	precision := map[device.DType]uint{device.Float32: 24, device.Float64: 53, device.BFloat16: 8}
	outputs := map[device.DType]*operand{}
	for to := range precision {
		outputs[to] = c.outputOf(to, contiguous, n)
	}
	narrow := c.outputOf(device.Int32, contiguous, n)
	c.commit()
	for _, o := range outputs {
		q.Copy(o.Tensor, src.Tensor)
	}
	q.Copy(narrow.Tensor, src.Tensor)
	c.verify()
	want := make([]float64, n)
	for to, p := range precision {
		for i, v := range values {
			want[i], _ = new(big.Float).SetPrec(p).SetInt64(v).Float64()
		}
		c.close(outputs[to], want, nil, 0)
	}
	for i, v := range values {
		want[i] = float64(int32(v))
	}
	c.close(narrow, want, nil, 0)
}

func testFill(t *testing.T, d device.Device, q device.Queue) {
	for _, dtype := range []device.DType{device.BFloat16, device.Float16, device.Int32, device.Int64, device.Uint8} {
		c := newScene(t, d, q, dtype, seed)
		zeros, threes := c.output(anyStrides, 3, 4), c.output(anyStrides, 3, 4)
		c.commit()
		q.Fill(zeros.Tensor, 0)
		q.Fill(threes.Tensor, 3)
		c.verify()
		want := make([]float64, 12)
		c.close(zeros, want, nil, 0)
		for i := range want {
			want[i] = 3
		}
		c.close(threes, want, nil, 0)
		c.free()
	}
}

func int64Bytes(values []int64) []byte {
	b := make([]byte, 8*len(values))
	for i, v := range values {
		binary.NativeEndian.PutUint64(b[8*i:], uint64(v))
	}
	return b
}
