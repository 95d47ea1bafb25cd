//go:build amd64 && !noasm

package cpu

import "unsafe"

// copyRowsAVX2 copies rows, at least 1, of blocks of rowBytes, at all levels. Distances
// between rows are in bytes.
//
//go:noescape
func copyRowsAVX2(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow, rows, blocks int)

// addRowsAVX2 computes dst += factor·x for rows of float32, like copyRowsAVX2.
//
//go:noescape
func addRowsAVX2(dst unsafe.Pointer, dstRow int, x unsafe.Pointer, xRow, rows, blocks int, factor float32)
