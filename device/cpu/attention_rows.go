package cpu

import "math"

// maximum is the largest element of x, −Inf if there is none. NaN is passed
// over: it comes back out of the exponential.
func maximum[T float](x []T) T {
	m := T(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// expScaled computes x = exp(scale·x + shift) in place and returns the sum.
func expScaled[T float](x []T, scale, shift T) T {
	var sum T
	for i, v := range x {
		e := T(math.Exp(float64(scale*v + shift)))
		x[i] = e
		sum += e
	}
	return sum
}

// scaled computes dst = factor·x.
func scaled[T float](dst, x []T, factor T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = factor * v
	}
}

// scoreGradient turns dp, the gradient of a row of probabilities p, into the
// gradient of scale times that row's scores: scale·p·(dp − delta).
func scoreGradient[T float](dp, p []T, delta, scale T) {
	dp = dp[:len(p)]
	for i, v := range p {
		dp[i] = scale * v * (dp[i] - delta)
	}
}
