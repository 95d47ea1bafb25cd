package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The vector rows agree with their Go twins at every length, tails included,
// and write nothing behind the row.
func TestScoreRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	best := bestLevel()
	for n := 1; n <= 70; n++ {
		p, dp := make([]float32, n+8), make([]float32, n+8)
		for i := range p {
			p[i], dp[i] = float32(40*rng.NormFloat64()), float32(rng.NormFloat64())
		}
		if got, want := scoreMaximum(best, p[:n]), scoreMaximum(levelGo, p[:n]); got != want {
			t.Fatalf("maximum of %d = %v, want %v", n, got, want)
		}
		shift := -0.5 * scoreMaximum(levelGo, p[:n])
		got, want := append([]float32(nil), p...), append([]float32(nil), p...)
		sum, wantSum := scoreExp(best, got[:n], 0.5, shift), scoreExp(levelGo, want[:n], 0.5, shift)
		near(t, "exp", n, got, want)
		near(t, "sum", n, []float32{sum}, []float32{wantSum})

		p2, dp2 := append([]float32(nil), p...), append([]float32(nil), dp...)
		scoreGradient(best, p[:n], dp[:n], 0.5, shift, 0.25)
		scoreGradient(levelGo, p2[:n], dp2[:n], 0.5, shift, 0.25)
		near(t, "probabilities", n, p, p2)
		near(t, "gradient", n, dp, dp2)
	}
}

// near allows for the rounding of the argument, |x| up to 100, before exp.
func near(t *testing.T, name string, n int, got, want []float32) {
	t.Helper()
	for i, w := range want {
		if d := math.Abs(float64(got[i] - w)); !(d <= 2e-5*math.Abs(float64(w))+1e-36) {
			t.Fatalf("%s of %d: element %d = %v, want %v", name, n, i, got[i], w)
		}
	}
}

// Zeros far below, NaN through, the ends of the exponential.
func TestScoreExpEdges(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	odd := math.Float32frombits(0x7fc00001) // a payload in the bits that exp shifts
	for _, l := range []level{levelGo, bestLevel()} {
		x := []float32{0, -1e4, -inf, nan, odd, -86.25, -104.5, 80, 1}
		scoreExp(l, x, 1, 0)
		for i, want := range []float64{1, 0, 0, math.NaN(), math.NaN(), math.Exp(-86.25), 0, math.Exp(80), math.E} {
			got := float64(x[i])
			if math.IsNaN(want) != math.IsNaN(got) || math.Abs(got-want) > 1e-6*want {
				t.Errorf("level %v: element %d = %v, want %v", l, i, got, want)
			}
		}
	}
}
