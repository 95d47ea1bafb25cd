package cpu

// Rows of a score tile. Each of these has an AVX2 version for float32, chosen
// by the level; it sums in other lanes and fuses, so bits differ between levels.

// scoreMaximum is the largest element of a row with at least one; a NaN that it
// passes over comes back out of scoreExp.
func scoreMaximum[T float](l level, x []T) T {
	if m, ok := scoreMaximumVector(l, x); ok {
		return m
	}
	return rowMaximum(x)
}

// scoreExp computes x = exp(scale·x + shift) and returns the sum.
func scoreExp[T float](l level, x []T, scale, shift T) T {
	if sum, ok := scoreExpVector(l, x, scale, shift); ok {
		return sum
	}
	expRow(x, x, scale, shift)
	return T(sumRow(x))
}

// scoreGradient takes a row p of q·kᵀ and a row dp of dout·vᵀ and computes the
// probabilities p = exp(scale·p + shift), and in dp the gradient of q·kᵀ,
// scale·p·(dp − delta).
func scoreGradient[T float](l level, p, dp []T, scale, shift, delta T) {
	if scoreGradientVector(l, p, dp, scale, shift, delta) {
		return
	}
	expRow(p, p, scale, shift)
	dp = dp[:len(p)]
	for i, v := range p {
		dp[i] = scale * v * (dp[i] - delta)
	}
}

// scaled computes dst = factor·x.
func scaled[T float](dst, x []T, factor T) {
	dst = dst[:len(x)]
	i := 0
	for ; i <= len(x)-4; i += 4 {
		to, from := (*[4]T)(dst[i:]), (*[4]T)(x[i:])
		to[0], to[1], to[2], to[3] = factor*from[0], factor*from[1], factor*from[2], factor*from[3]
	}
	for ; i < len(x); i++ {
		dst[i] = factor * x[i]
	}
}
