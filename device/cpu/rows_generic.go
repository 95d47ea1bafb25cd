//go:build !amd64 || noasm

package cpu

import "unsafe"

func copyRowsAVX2(unsafe.Pointer, int, unsafe.Pointer, int, int, int) {
	panic("cpu: no vector kernels")
}

func addRowsAVX2(unsafe.Pointer, int, unsafe.Pointer, int, int, int, float32) {
	panic("cpu: no vector kernels")
}
