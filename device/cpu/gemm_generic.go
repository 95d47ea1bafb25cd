//go:build !amd64 || noasm

package cpu

import "unsafe"

func gemmPanel[T float](_ level, strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int,
	b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool) {
	gemmPanelGo[T](strips, k, a, aStrip, aRow, aStep, b, bStep, c, cRow, accumulate)
}

func gemmShort[T float](_ level, k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int,
	c unsafe.Pointer, cRow int, accumulate bool) {
	gemmPanelGo[T](1, k, a, 0, aRow, aStep, b, bStep, c, cRow, accumulate)
}

func gemmNarrow[T float](_ level, k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool) {
	gemmNarrowGo[T](k, a, aRow, aStep, b, c, accumulate)
}

func gemmDotRows[T float](level) int { return 0 }

func gemmDot(int, unsafe.Pointer, int, unsafe.Pointer, unsafe.Pointer) {}

func gemmTileOf[T float](level) (rows, columns int) { return gemmRowsGo, gemmColumnsGo }

func gemmTranspose[T float](_ level, left, _ int, _ unsafe.Pointer, _ int, _ unsafe.Pointer, _ int) (lanes, steps int) {
	return left, 0
}

func gemmDealPanels[T float](_ level, steps, panels, width int, dst unsafe.Pointer, dstNext, dstStep int, src unsafe.Pointer, srcStep int) {
	gemmDealPanelsGo[T](steps, panels, width, dst, dstNext, dstStep, src, srcStep)
}
