//go:build amd64 && !noasm

package cpu

import "unsafe"

// gemmPanel is the micro-kernel of l, or its Go twin [gemmPanelGo]. The next panel
// of b lies bNext bytes on: it is fetched ahead.
func gemmPanel[T float](l level, strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int,
	b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool) {
	switch {
	case l == levelGo || unsafe.Sizeof(*new(T)) != 4:
		gemmPanelGo[T](strips, k, a, aStrip, aRow, aStep, b, bStep, c, cRow, accumulate)
	case l == levelAVX2:
		gemmAVX2(strips, k, a, aStrip, aRow, aStep, b, bStep, bNext, c, cRow, accumulate)
	default:
		gemmAVX512(strips, k, a, aStrip, aRow, aStep, b, bStep, bNext, c, cRow, accumulate)
	}
}

// gemmTileOf is the size of the micro-kernel's tile of c.
func gemmTileOf[T float](l level) (rows, columns int) {
	switch {
	case l == levelGo || unsafe.Sizeof(*new(T)) != 4:
		return gemmRowsGo, gemmColumnsGo
	case l == levelAVX2:
		return 6, 16
	}
	return 12, 32
}

// gemmAVX2 is [gemmPanelGo] with a tile of 6×16 float32.
//
//go:noescape
func gemmAVX2(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)

// gemmAVX512 is [gemmPanelGo] with a tile of 12×32 float32.
//
//go:noescape
func gemmAVX512(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)

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

// gemmTranspose packs four lanes of float32 and returns how many steps it did.
func gemmTranspose[T float](l level, depth int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int) int {
	if l == levelGo || unsafe.Sizeof(*new(T)) != 4 || depth < 8 {
		return 0
	}
	gemmTranspose4(depth/8, dst, dstStep, src, srcLane)
	return depth &^ 7
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
