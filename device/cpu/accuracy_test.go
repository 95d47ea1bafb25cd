package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/devicetest"
)

// TestAccuracy holds float32 kernels against float64 on rows of standard normal numbers
// times four. Errors are in units of 2⁻²⁴, half the distance of one to the next float32.
func TestAccuracy(t *testing.T) {
	const rows, width = 64, 4096
	d, err := New(Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	q := d.NewQueue()
	defer q.Close()
	tensor := func(shape ...int) device.Tensor {
		bytes := int64(4)
		for _, n := range shape {
			bytes *= int64(n)
		}
		b, err := d.Alloc(device.OnDevice, bytes)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Free)
		return device.NewTensor(b, 0, device.Float32, shape...)
	}
	random := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, rows*width)
	for i := range values {
		values[i] = float64(float32(4 * random.NormFloat64()))
	}
	x, y := tensor(rows, width), tensor(rows, width)
	devicetest.SetFloats(x, values)

	q.Softmax(y, x)
	softmax := 0.0
	for r, got := range rowsOf(devicetest.Floats(y), width) {
		row := values[r*width : (r+1)*width]
		sum, peak := 0.0, math.Inf(-1)
		for _, v := range row {
			sum, peak = sum+math.Exp(v), max(peak, v)
		}
		for i, v := range row {
			// The distance to the largest is rounded before the power is taken.
			softmax = max(softmax, math.Abs(got[i]*sum/math.Exp(v)-1)/(1+peak-v))
		}
	}

	one := tensor(width)
	ones := make([]float64, width)
	for i := range ones {
		ones[i] = 1
	}
	devicetest.SetFloats(one, ones)
	q.RMSNorm(y, x, one, 1e-5)
	norm := 0.0
	for r, got := range rowsOf(devicetest.Floats(y), width) {
		row := values[r*width : (r+1)*width]
		square := 0.0
		for _, v := range row {
			square += v * v
		}
		scale := 1 / math.Sqrt(square/width+1e-5)
		for i, v := range row {
			norm = max(norm, math.Abs(got[i]-v*scale)/math.Abs(v*scale))
		}
	}

	sums := tensor(rows, 1)
	q.Sum(sums, x)
	sum := 0.0
	for r, got := range devicetest.Floats(sums) {
		exact, size := 0.0, 0.0
		for _, v := range values[r*width : (r+1)*width] {
			exact, size = exact+v, size+math.Abs(v)
		}
		sum = max(sum, math.Abs(got-exact)/size)
	}
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}

	const unit = 1.0 / (1 << 24)
	for _, e := range []struct {
		kernel       string
		worst, bound float64
	}{
		{"softmax, relative to each probability p, for each 1 + log(p of the largest / p)", softmax, 4},
		{"RMSNorm, relative to each number", norm, 4},
		{"sum of 4096, relative to the sum of magnitudes", sum, 1},
	} {
		t.Logf("%s: %.2f", e.kernel, e.worst/unit)
		if !(e.worst <= e.bound*unit) {
			t.Errorf("%s: error of %.2f units, want at most %v", e.kernel, e.worst/unit, e.bound)
		}
	}
}

// rowsOf cuts a matrix into rows.
func rowsOf(x []float64, width int) (rows [][]float64) {
	for ; len(x) > 0; x = x[width:] {
		rows = append(rows, x[:width])
	}
	return rows
}
