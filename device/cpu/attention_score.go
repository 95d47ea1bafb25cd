package cpu

import (
	"math"
	"unsafe"
)

// Kernels over tiles of scores. The vector versions work on panels, as wide as the
// tile of the micro-kernel, whose rows lie stride elements apart; they fuse products
// and sums, so their bits differ from those of the Go twins.

// scoreMaximum raises maximum, of each of a panel's columns, to what rows hold. NaN
// does not count: it comes back out of scoreExp.
func scoreMaximum[T float](l level, s unsafe.Pointer, rows, stride int, maximum []T) {
	if vectorized[T](l) {
		attentionMaximum(l, s, rows, 4*stride, unsafe.Pointer(&maximum[0]))
		return
	}
	for r := range rows {
		for i, x := range slice[T](s, r*stride, len(maximum)) {
			if x > maximum[i] {
				maximum[i] = x
			}
		}
	}
}

// scoreMaximumHidden is scoreMaximum where column i shows the rows [lo[i], hi[i]) of
// those from key on: the others become −Inf.
func scoreMaximumHidden[T float](l level, s unsafe.Pointer, rows, stride int, maximum []T, key int, lo, hi []int32) {
	if vectorized[T](l) {
		attentionMaximumHidden(l, s, rows, 4*stride, unsafe.Pointer(&maximum[0]), int32(key), unsafe.Pointer(&lo[0]), unsafe.Pointer(&hi[0]))
		return
	}
	hidden := T(math.Inf(-1))
	for r := range rows {
		for i, row := 0, slice[T](s, r*stride, len(maximum)); i < len(row); i++ {
			if key+r < int(lo[i]) || key+r >= int(hi[i]) {
				row[i] = hidden
			}
		}
	}
	scoreMaximum(levelGo, s, rows, stride, maximum)
}

// scoreExp turns x into exp(factor·(x − shift)), with the shift of its column, and
// adds the sum of each column to sum. factor > 0.
func scoreExp[T float](l level, s unsafe.Pointer, rows, stride int, shift, sum []T, factor T) {
	if vectorized[T](l) {
		binary, floor := exp2Factor(factor)
		attentionExp(l, s, rows, 4*stride, unsafe.Pointer(&shift[0]), unsafe.Pointer(&sum[0]), binary, floor)
		return
	}
	for i := range sum {
		added := T(0)
		for r := range rows {
			x := item[T](s, r*stride+i)
			*x = exponential(factor * (*x - shift[i]))
			added += *x
		}
		sum[i] += added
	}
}

// scoreGradient takes rows p of q·kᵀ and dp of dout·vᵀ, panels wide, and computes the
// probabilities p = exp(factor·(p − shift)), with the shift of its row and at most 1,
// and in dp the gradient p·(dp − delta) of factor·q·kᵀ. factor > 0.
func scoreGradient[T float](l level, p, dp unsafe.Pointer, rows, panels, width, stride int, shift, delta []T, factor T) {
	if vectorized[T](l) {
		binary, floor := exp2Factor(factor)
		attentionGradient(l, p, dp, rows, panels, 4*stride, unsafe.Pointer(&shift[0]), unsafe.Pointer(&delta[0]), binary, floor)
		return
	}
	for r := range rows {
		p, dp := slice[T](p, r*stride, panels*width), slice[T](dp, r*stride, panels*width)
		for i, x := range p {
			x -= shift[r]
			if x > 0 {
				x = 0
			}
			p[i] = exponential(factor * x)
			dp[i] = p[i] * (dp[i] - delta[r])
		}
	}
}

// exp2Factor is the factor that makes a power of 2 of one of e, and the argument below
// which the power is 0: the exponent of a float32 reaches to −126.
func exp2Factor[T float](factor T) (binary, floor float32) {
	binary = float32(float64(factor) * math.Log2E)
	return binary, -127 / binary
}

func exponential[T float](x T) T {
	if single[T]() {
		return T(exp32(float32(x)))
	}
	return T(math.Exp(float64(x)))
}
