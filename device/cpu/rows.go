package cpu

import "unsafe"

// rowBytes is the unit of vector kernels over rows that lie apart.
const rowBytes = 32

// copyRows copies rows of width elements, dstRow and srcRow elements apart.
func copyRows[T float](l level, dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow, rows, width int) {
	if vectorized[T](l) && rows > 0 && width > 0 && width*4%rowBytes == 0 {
		copyRowsAVX2(dst, 4*dstRow, src, 4*srcRow, rows, width*4/rowBytes)
		return
	}
	for r := range rows {
		copy(slice[T](dst, r*dstRow, width), slice[T](src, r*srcRow, width))
	}
}

// scaleRows computes dst = factor·x for rows of width elements, dstRow and xRow
// elements apart.
func scaleRows[T float](l level, dst unsafe.Pointer, dstRow int, x unsafe.Pointer, xRow, rows, width int, factor T) {
	for r := range rows {
		scaledRow(l, slice[T](dst, r*dstRow, width), slice[T](x, r*xRow, width), factor)
	}
}

// addRows computes dst += factor·x, like scaleRows.
func addRows[T float](l level, dst unsafe.Pointer, dstRow int, x unsafe.Pointer, xRow, rows, width int, factor T) {
	if vectorized[T](l) && rows > 0 && width > 0 && width*4%rowBytes == 0 {
		addRowsAVX2(dst, 4*dstRow, x, 4*xRow, rows, width*4/rowBytes, float32(factor))
		return
	}
	for r := range rows {
		to := slice[T](dst, r*dstRow, width)
		addScaledRow(l, to, to, slice[T](x, r*xRow, width), factor)
	}
}
