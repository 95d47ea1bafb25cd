//go:build amd64 && !noasm

package cpu

import "unsafe"

// gemmPanel is the micro-kernel of l, or its Go twin [gemmPanelGo]. The next panel
// of b lies bNext bytes on: it is fetched ahead.
func gemmPanel[T float](l level, strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int,
	b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool) {
	switch {
	case l == levelGo:
		gemmPanelGo[T](strips, k, a, aStrip, aRow, aStep, b, bStep, c, cRow, accumulate)
	case l == levelAVX2 && single[T]():
		gemmAVX2(strips, k, a, aStrip, aRow, aStep, b, bStep, bNext, c, cRow, accumulate)
	case l == levelAVX2:
		gemmAVX2Double(strips, k, a, aStrip, aRow, aStep, b, bStep, bNext, c, cRow, accumulate)
	case single[T]():
		gemmAVX512(strips, k, a, aStrip, aRow, aStep, b, bStep, bNext, c, cRow, accumulate)
	default:
		gemmAVX512Double(strips, k, a, aStrip, aRow, aStep, b, bStep, bNext, c, cRow, accumulate)
	}
}

// gemmTileOf is the size of the micro-kernel's tile of c.
func gemmTileOf[T float](l level) (rows, columns int) {
	size := int(unsafe.Sizeof(*new(T)))
	switch l {
	case levelGo:
		return gemmRowsGo, gemmColumnsGo
	case levelAVX2:
		return 6, 64 / size
	}
	return 12, 128 / size
}

// gemmAVX2 is [gemmPanelGo] with a tile of 6×16 float32.
//
//go:noescape
func gemmAVX2(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmAVX2Double is [gemmPanelGo] with a tile of 6×8 float64.
//
//go:noescape
func gemmAVX2Double(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmAVX512 is [gemmPanelGo] with a tile of 12×32 float32.
//
//go:noescape
func gemmAVX512(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmAVX512Double is [gemmPanelGo] with a tile of 12×16 float64.
//
//go:noescape
func gemmAVX512Double(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmShort is the micro-kernel of l for gemmShortRows rows.
func gemmShort[T float](l level, k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int,
	c unsafe.Pointer, cRow int, accumulate bool) {
	switch {
	case l == levelGo:
		gemmPanelGo[T](1, k, a, 0, aRow, aStep, b, bStep, c, cRow, accumulate)
	case l == levelAVX2 && single[T]():
		gemmShortAVX2(k, a, aRow, aStep, b, bStep, c, cRow, accumulate)
	case l == levelAVX2:
		gemmShortAVX2Double(k, a, aRow, aStep, b, bStep, c, cRow, accumulate)
	case single[T]():
		gemmShortAVX512(k, a, aRow, aStep, b, bStep, c, cRow, accumulate)
	default:
		gemmShortAVX512Double(k, a, aRow, aStep, b, bStep, c, cRow, accumulate)
	}
}

// gemmShortAVX2 is one strip of [gemmPanelGo] with a tile of 4×16 float32.
//
//go:noescape
func gemmShortAVX2(k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmShortAVX2Double is one strip of [gemmPanelGo] with a tile of 4×8 float64.
//
//go:noescape
func gemmShortAVX2Double(k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmShortAVX512 is one strip of [gemmPanelGo] with a tile of 4×32 float32.
//
//go:noescape
func gemmShortAVX512(k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmShortAVX512Double is one strip of [gemmPanelGo] with a tile of 4×16 float64.
//
//go:noescape
func gemmShortAVX512Double(k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmNarrow is the micro-kernel of l for half the columns, or [gemmNarrowGo].
func gemmNarrow[T float](l level, k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool) {
	switch {
	case l == levelGo:
		gemmNarrowGo[T](k, a, aRow, aStep, b, c, accumulate)
	case l == levelAVX2 && single[T]():
		gemmNarrowAVX2(k, a, aRow, aStep, b, c, accumulate)
	case l == levelAVX2:
		gemmNarrowAVX2Double(k, a, aRow, aStep, b, c, accumulate)
	case single[T]():
		gemmNarrowAVX512(k, a, aRow, aStep, b, c, accumulate)
	default:
		gemmNarrowAVX512Double(k, a, aRow, aStep, b, c, accumulate)
	}
}

// gemmNarrowAVX2 is [gemmNarrowGo] with a tile of 6×8 float32.
//
//go:noescape
func gemmNarrowAVX2(k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool)

// gemmNarrowAVX2Double is [gemmNarrowGo] with a tile of 6×4 float64.
//
//go:noescape
func gemmNarrowAVX2Double(k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool)

// gemmNarrowAVX512 is [gemmNarrowGo] with a tile of 12×16 float32.
//
//go:noescape
func gemmNarrowAVX512(k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool)

// gemmNarrowAVX512Double is [gemmNarrowGo] with a tile of 12×8 float64.
//
//go:noescape
func gemmNarrowAVX512Double(k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool)

// gemmDotRows is how many rows [gemmDot] takes, 0 where there is none.
func gemmDotRows[T float](l level) int {
	if l == levelGo || !single[T]() {
		return 0
	}
	return 16
}

// gemmDot is, with aRow in bytes,
//
//	for i := range 16 {
//		sums[i] = 0
//		for p := range 16 * blocks {
//			sums[i] += a[i*aRow+4*p] * x[4*p] // fused
//		}
//	}
//
//go:noescape
func gemmDot(blocks int, a unsafe.Pointer, aRow int, x, sums unsafe.Pointer)

// gemmTranspose4 is, with strides in bytes,
//
//	for step := range 8 * blocks {
//		for lane := range 4 {
//			dst[step*dstStep+4*lane] = src[lane*srcLane+4*step]
//		}
//	}
//
//go:noescape
func gemmTranspose4(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)

// gemmTranspose4Double is, with strides in bytes,
//
//	for step := range 4 * blocks {
//		for lane := range 4 {
//			dst[step*dstStep+8*lane] = src[lane*srcLane+8*step]
//		}
//	}
//
//go:noescape
func gemmTranspose4Double(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)

// gemmTranspose6 is [gemmTranspose4] of 6 lanes, and fetches what lies behind the last.
//
//go:noescape
func gemmTranspose6(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)

// gemmTranspose8 is [gemmTranspose6] of 8 lanes.
//
//go:noescape
func gemmTranspose8(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)

// gemmTranspose12 is, with strides in bytes,
//
//	for step := range 16 * blocks {
//		for lane := range 12 {
//			dst[step*dstStep+4*lane] = src[lane*srcLane+4*step]
//		}
//	}
//
// and fetches what lies behind the last lane.
//
//go:noescape
func gemmTranspose12(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)

// gemmTranspose16 is [gemmTranspose12] of 16 lanes.
//
//go:noescape
func gemmTranspose16(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)

// gemmTranspose packs some of the next lanes, of left, and returns how many lanes and how
// many steps of them it did.
func gemmTranspose[T float](l level, left, depth int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int) (lanes, steps int) {
	switch {
	case l == levelGo || left < 4 || depth < 8:
		return left, 0
	case l == levelAVX512 && single[T]() && left >= 16 && depth >= 16:
		gemmTranspose16(depth/16, dst, dstStep, src, srcLane)
		return 16, depth &^ 15
	case l == levelAVX512 && single[T]() && left >= 12 && depth >= 16:
		gemmTranspose12(depth/16, dst, dstStep, src, srcLane)
		return 12, depth &^ 15
	case single[T]() && left >= 8:
		gemmTranspose8(depth/8, dst, dstStep, src, srcLane)
		return 8, depth &^ 7
	case single[T]() && left == 6:
		gemmTranspose6(depth/8, dst, dstStep, src, srcLane)
		return 6, depth &^ 7
	case single[T]():
		gemmTranspose4(depth/8, dst, dstStep, src, srcLane)
	default:
		gemmTranspose4Double(depth/8*2, dst, dstStep, src, srcLane)
	}
	return 4, depth &^ 7
}

// gemmDeal is, in bytes, for panels of a multiple of 8 bytes a step,
//
//	for step := range steps {
//		for panel := range panels {
//			from := step*srcStep + panel*bytes
//			copy(dst[step*dstStep+panel*dstNext:], src[from:from+bytes])
//		}
//	}
//
//go:noescape
func gemmDeal(steps, panels, bytes int, dst unsafe.Pointer, dstNext, dstStep int, src unsafe.Pointer, srcStep int)

// gemmDealPanels packs whole panels whose lanes are contiguous.
func gemmDealPanels[T float](l level, steps, panels, width int, dst unsafe.Pointer, dstNext, dstStep int, src unsafe.Pointer, srcStep int) {
	if l == levelGo {
		gemmDealPanelsGo[T](steps, panels, width, dst, dstNext, dstStep, src, srcStep)
		return
	}
	gemmDeal(steps, panels, width*int(unsafe.Sizeof(*new(T))), dst, dstNext, dstStep, src, srcStep)
}
