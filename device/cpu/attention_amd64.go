//go:build amd64 && !noasm

package cpu

import "unsafe"

func scoreMaximumVector[T float](l level, x []T) (T, bool) {
	if l == levelGo || !single[T]() {
		return 0, false
	}
	return T(attentionMaximumAVX2(unsafe.Pointer(&x[0]), len(x))), true
}

func scoreExpVector[T float](l level, x []T, scale, shift T) (T, bool) {
	if l == levelGo || !single[T]() {
		return 0, false
	}
	return T(attentionExpAVX2(unsafe.Pointer(&x[0]), len(x), float32(scale), float32(shift))), true
}

func scoreGradientVector[T float](l level, p, dp []T, scale, shift, delta T) bool {
	if l == levelGo || !single[T]() {
		return false
	}
	attentionGradientAVX2(unsafe.Pointer(&p[0]), unsafe.Pointer(&dp[0]), len(p), float32(scale), float32(shift), float32(delta))
	return true
}

// attentionMaximumAVX2 is rowMaximum.
//
//go:noescape
func attentionMaximumAVX2(x unsafe.Pointer, n int) float32

// attentionExpAVX2 is expRow in place and the sum of it.
//
//go:noescape
func attentionExpAVX2(x unsafe.Pointer, n int, scale, shift float32) (sum float32)

// attentionGradientAVX2 is the loop of scoreGradient behind expRow.
//
//go:noescape
func attentionGradientAVX2(p, dp unsafe.Pointer, n int, scale, shift, delta float32)
