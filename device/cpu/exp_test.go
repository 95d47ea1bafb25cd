package cpu

import (
	"flag"
	"math"
	"testing"
)

var exhaustive = flag.Bool("exhaustive", false, "try the exponential on every float32, which takes minutes")

// TestExp32 walks float32 from end to end.
func TestExp32(t *testing.T) {
	step := uint32(991)
	switch {
	case *exhaustive:
		step = 1
	case testing.Short():
		step = 99991
	}
	worstExp, worstTanh := 0.0, 0.0
	var row, out [1]float32
	for bits := uint64(0); bits < 1<<32; bits += uint64(step) {
		x := math.Float32frombits(uint32(bits))
		got, want := exp32(x), math.Exp(float64(x))
		if err := ulps(got, want); err > worstExp {
			worstExp = err
		}
		if err := ulps(tanh32(x), math.Tanh(float64(x))); err > worstTanh {
			worstTanh = err
		}
		row[0] = x
		if expRow(bestLevel(), out[:], row[:], 1, 0); out[0] != got && (out[0] == out[0] || got == got) {
			t.Fatalf("expRow(%v) = %v, exp32 gives %v", x, out[0], got)
		}
	}
	t.Logf("exp %.2f, tanh %.2f units in the last place", worstExp, worstTanh)
	if worstExp > 1.5 || worstTanh > 3 {
		t.Errorf("errors of %v and %v units in the last place, want 1.5 and 3", worstExp, worstTanh)
	}
	for _, x := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0, 88.8, -103.9, -104.1} {
		got, want := exp32(float32(x)), float32(math.Exp(float64(float32(x))))
		if got != want && (got == got || want == want) {
			t.Errorf("exp32(%v) = %v, want %v", x, got, want)
		}
	}
}

// ulps is the distance of two numbers in units in the last place of the second.
func ulps(got float32, want float64) float64 {
	rounded := float32(want)
	if got == rounded || got != got && want != want {
		return 0
	}
	if math.IsInf(float64(rounded), 0) {
		return math.Inf(1)
	}
	next := math.Nextafter32(float32(math.Abs(float64(rounded))), math.MaxFloat32)
	return math.Abs(float64(got)-want) / (float64(next) - math.Abs(float64(rounded)))
}

func BenchmarkExpRow(b *testing.B) {
	x, y := make([]float32, 4096), make([]float32, 4096)
	for i := range x {
		x[i] = float32(i%80) - 60.3
	}
	b.SetBytes(4 * 4096)
	for b.Loop() {
		expRow(bestLevel(), y, x, 1, 0)
	}
}
