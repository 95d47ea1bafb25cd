package page

import "math"

// scale maps values to [0, 1].
type scale struct {
	low, high float64
	log       bool
}

// logFrom is the ratio of largest to smallest value from which a scale is logarithmic.
const logFrom = 100

// newScale spans the finite ones of values; it is logarithmic, if that is allowed, for
// positive values of different magnitude.
func newScale(values []float64, mayLog bool) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1)}
	for _, v := range values {
		if finite(v) {
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
	}
	switch {
	case s.low > s.high:
		s.low, s.high = 0, 1
	case mayLog && s.low > 0 && s.high/s.low >= logFrom:
		s.log = true
	case s.low == s.high:
		margin := max(math.Abs(s.low)/10, 1e-9)
		s.low, s.high = s.low-margin, s.high+margin
	}
	return s
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (s scale) at(v float64) float64 {
	if s.log {
		return math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return (v - s.low) / (s.high - s.low)
}

// ticks are round values within the scale, about n of them.
func (s scale) ticks(n int) []float64 {
	if s.log {
		return s.powers()
	}
	step := roundStep((s.high - s.low) / float64(n))
	var list []float64
	for i := math.Ceil(s.low / step); i*step <= s.high; i++ {
		list = append(list, i*step)
	}
	return list
}

// powers are the powers of ten, or both ends where there are less than two.
func (s scale) powers() []float64 {
	var list []float64
	for e := math.Ceil(math.Log10(s.low)); e <= math.Log10(s.high); e++ {
		list = append(list, math.Pow(10, e))
	}
	if len(list) < 2 {
		return []float64{s.low, s.high}
	}
	return list
}

// roundStep is the least of 1, 2 and 5 times a power of ten that is not below x.
func roundStep(x float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*base >= x {
			return m * base
		}
	}
	return 10 * base
}
