package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// scorePanel is rows of panels of scores, with a guard behind each row and the last.
type scorePanel struct {
	data                []float32
	rows, width, stride int
}

func newScorePanel(rng *rand.Rand, rows, width int, size float64) scorePanel {
	p := scorePanel{rows: rows, width: width, stride: width + 3}
	p.data = make([]float32, rows*p.stride+8)
	for i := range p.data {
		p.data[i] = float32(size * rng.NormFloat64())
	}
	return p
}

func (p scorePanel) clone() scorePanel {
	p.data = append([]float32(nil), p.data...)
	return p
}

// forVectorLevels runs a test at every level with vector kernels, with the width of
// its panels.
func forVectorLevels(t *testing.T, test func(t *testing.T, l level, width int)) {
	for l := levelAVX2; l <= bestLevel(); l++ {
		_, width := gemmTileOf[float32](l)
		t.Run(l.String(), func(t *testing.T) { test(t, l, width) })
	}
}

func (p scorePanel) at() unsafe.Pointer { return unsafe.Pointer(&p.data[0]) }

// The vector kernels agree with their Go twins for any number of rows and write
// nothing beside the panel.
func TestScoreKernels(t *testing.T) { forVectorLevels(t, testScoreKernels) }

func testScoreKernels(t *testing.T, vector level, width int) {
	rng := rand.New(rand.NewPCG(5, 6))
	column := func(size float64) []float32 { return newScorePanel(rng, 1, width-3, size).data[:width] }
	for _, rows := range []int{1, 2, 3, 7, 16, 95, 96} {
		p := newScorePanel(rng, rows, width, 40)
		lo, hi := make([]int32, width), make([]int32, width)
		for i := range lo {
			lo[i] = int32(rng.IntN(rows + 2))
			hi[i] = lo[i] + int32(rng.IntN(rows+2)-1)
		}
		top, hidden := column(50), column(50)
		shift, sum := column(40), column(1)
		for i := range shift {
			shift[i] = 60 + float32(math.Abs(float64(shift[i])))
		}
		results := func(l level) [][]float32 {
			p, sum := p.clone(), append([]float32(nil), sum...)
			top, hidden := append([]float32(nil), top...), append([]float32(nil), hidden...)
			scoreMaximum(l, p.at(), rows, p.stride, top)
			scoreExp(l, p.at(), rows, p.stride, shift, sum, 0.5)
			exp := p.clone()
			scoreMaximumHidden(l, p.at(), rows, p.stride, hidden, 1, lo, hi)
			return [][]float32{top, sum, exp.data, hidden, p.data}
		}
		got, want := results(vector), results(levelGo)
		for i, name := range []string{"maximum", "sum", "exp", "hidden maximum", "hidden"} {
			near(t, name, rows, got[i], want[i])
		}
	}
}

func TestScoreGradient(t *testing.T) { forVectorLevels(t, testScoreGradient) }

func testScoreGradient(t *testing.T, vector level, width int) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, rows := range []int{1, 2, 5, 96} {
		for panels := 1; panels <= 3; panels++ {
			p, dp := newScorePanel(rng, rows, panels*width, 20), newScorePanel(rng, rows, panels*width, 1)
			shift, delta := newScorePanel(rng, 1, rows, 20).data, newScorePanel(rng, 1, rows, 1).data
			p2, dp2 := p.clone(), dp.clone()
			scoreGradient(vector, p.at(), dp.at(), rows, panels, width, p.stride, shift, delta, 0.5)
			scoreGradient(levelGo, p2.at(), dp2.at(), rows, panels, width, p.stride, shift, delta, 0.5)
			near(t, "probabilities", rows, p.data, p2.data)
			near(t, "gradient", rows, dp.data, dp2.data)
		}
	}
}

// near allows for the rounding of the argument, |x| up to 100, before exp; below the
// normal numbers the vector kernels give 0.
func near(t *testing.T, name string, n int, got, want []float32) {
	t.Helper()
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - float64(w)); got[i] != w && !(d <= 2e-5*math.Abs(float64(w))+2e-38) {
			t.Fatalf("%s of %d: element %d = %v, want %v", name, n, i, got[i], w)
		}
	}
}

// The exponential is right to 2 units in the last place, exactly 1 for 0, exactly 0
// far below, and NaN for NaN.
func TestScoreExpAccuracy(t *testing.T) { forVectorLevels(t, testScoreExpAccuracy) }

func testScoreExpAccuracy(t *testing.T, vector level, width int) {
	x, zero := make([]float32, width), make([]float32, width)
	for step := range 200_000 {
		want := float32(-90 + 0.0005*float64(step))
		x[step%width] = want
		sum := make([]float32, width)
		if step%width != width-1 {
			continue
		}
		arguments := append([]float32(nil), x...)
		scoreExp(vector, unsafe.Pointer(&x[0]), 1, width, zero, sum, 1)
		for i, a := range arguments {
			exact := math.Exp(float64(a))
			// The factor log₂e is rounded: an error of |x|·2⁻²⁵ before the power is taken.
			if d := math.Abs(float64(x[i]) - exact); a > -87 && d > exact*(2+math.Abs(float64(a))/2)/(1<<23) {
				t.Fatalf("exp(%v) = %v, want %v", a, x[i], exact)
			}
		}
	}
	nan := float32(math.NaN())
	odd := math.Float32frombits(0x7fc00001) // a payload in the bits that exp shifts
	for _, l := range []level{levelGo, vector} {
		x := make([]float32, width)
		copy(x, []float32{0, -1e4, float32(math.Inf(-1)), nan})
		x[width-1] = odd
		sum := make([]float32, width)
		scoreExp(l, unsafe.Pointer(&x[0]), 1, width, zero, sum, 1)
		if x[0] != 1 || x[1] != 0 || x[2] != 0 || x[3] == x[3] || x[width-1] == x[width-1] {
			t.Errorf("level %v: exp of 0, -1e4, -Inf, NaN and NaN = %v %v", l, x[:4], x[width-1])
		}
	}
}
