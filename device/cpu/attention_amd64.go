//go:build amd64 && !noasm

package cpu

import "unsafe"

func attentionMaximum(l level, s unsafe.Pointer, rows, stride int, maximum unsafe.Pointer) {
	if l == levelAVX2 {
		attentionMaximumAVX2(s, rows, stride, maximum)
	} else {
		attentionMaximumAVX512(s, rows, stride, maximum)
	}
}

func attentionMaximumHidden(l level, s unsafe.Pointer, rows, stride int, maximum unsafe.Pointer, key int32, lo, hi unsafe.Pointer) {
	if l == levelAVX2 {
		attentionMaximumHiddenAVX2(s, rows, stride, maximum, key, lo, hi)
	} else {
		attentionMaximumHiddenAVX512(s, rows, stride, maximum, key, lo, hi)
	}
}

func attentionExp(l level, s unsafe.Pointer, rows, stride int, shift, sum unsafe.Pointer, factor, floor float32) {
	if l == levelAVX2 {
		attentionExpAVX2(s, rows, stride, shift, sum, factor, floor)
	} else {
		attentionExpAVX512(s, rows, stride, shift, sum, factor, floor)
	}
}

func attentionGradient(l level, p, dp unsafe.Pointer, rows, blocks, stride int, shift, delta unsafe.Pointer, factor, floor float32) {
	if l == levelAVX2 {
		attentionGradientAVX2(p, dp, rows, blocks, stride, shift, delta, factor, floor)
	} else {
		attentionGradientAVX512(p, dp, rows, blocks, stride, shift, delta, factor, floor)
	}
}

// attentionMaximumAVX2 is scoreMaximum over 16 columns. Here and below rows is at
// least 1 and strides are in bytes.
//
//go:noescape
func attentionMaximumAVX2(s unsafe.Pointer, rows, stride int, maximum unsafe.Pointer)

// attentionMaximumAVX512 has 32 columns, like all of its level.
//
//go:noescape
func attentionMaximumAVX512(s unsafe.Pointer, rows, stride int, maximum unsafe.Pointer)

// attentionMaximumHiddenAVX2 is scoreMaximumHidden.
//
//go:noescape
func attentionMaximumHiddenAVX2(s unsafe.Pointer, rows, stride int, maximum unsafe.Pointer, key int32, lo, hi unsafe.Pointer)

//go:noescape
func attentionMaximumHiddenAVX512(s unsafe.Pointer, rows, stride int, maximum unsafe.Pointer, key int32, lo, hi unsafe.Pointer)

// attentionExpAVX2 is scoreExp for exp2Factor's results.
//
//go:noescape
func attentionExpAVX2(s unsafe.Pointer, rows, stride int, shift, sum unsafe.Pointer, factor, floor float32)

//go:noescape
func attentionExpAVX512(s unsafe.Pointer, rows, stride int, shift, sum unsafe.Pointer, factor, floor float32)

// attentionGradientAVX2 is scoreGradient over blocks of 16 columns.
//
//go:noescape
func attentionGradientAVX2(p, dp unsafe.Pointer, rows, blocks, stride int, shift, delta unsafe.Pointer, factor, floor float32)

//go:noescape
func attentionGradientAVX512(p, dp unsafe.Pointer, rows, blocks, stride int, shift, delta unsafe.Pointer, factor, floor float32)
