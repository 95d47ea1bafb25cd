package cpu

import (
	"math"
	"testing"
)

// TestExp32 walks float32 from end to end.
func TestExp32(t *testing.T) {
	step := uint32(991)
	if testing.Short() {
		step = 99991
	}
	worstExp, worstTanh := 0.0, 0.0
	var row, out []float32
	for bits := uint32(0); bits < 0xFF800000; bits += step {
		x := math.Float32frombits(bits)
		got, want := exp32(x), math.Exp(float64(x))
		if err := ulps(got, want); err > worstExp {
			worstExp = err
		}
		if err := ulps(tanh32(x), math.Tanh(float64(x))); err > worstTanh {
			worstTanh = err
		}
		row, out = append(row[:0], x), append(out[:0], 0)
		if expRow(out, row, 1, 0); out[0] != got && got == got {
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
		expRow(y, x, 1, 0)
	}
}
