package moe

import (
	"math"
	"testing"
)

func TestLoadMeasures(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		tokens             []float64
		violation, entropy float64
	}{
		{[]float64{5, 5, 5, 5}, 0, 1},
		{[]float64{8, 0, 0, 0}, 3, 0},
		{[]float64{4, 4, 0, 0}, 1, 0.5},
		{[]float64{3, 1}, 0.5, (0.75*math.Log(4.0/3) + 0.25*math.Log(4)) / math.Ln2},
		{[]float64{0, 0}, nan, nan},
		{[]float64{7}, 0, nan},
	} {
		l := Load{Tokens: test.tokens}
		same := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 || math.IsNaN(a) && math.IsNaN(b) }
		if v, e := l.MaxViolation(), l.Entropy(); !same(v, test.violation) || !same(e, test.entropy) {
			t.Errorf("%v: max violation %v, entropy %v; want %v, %v", test.tokens, v, e, test.violation, test.entropy)
		}
	}
}
