//go:build !amd64 || noasm

package cpu

import "unsafe"

func attentionMaximum(level, unsafe.Pointer, int, int, unsafe.Pointer) {
	panic("cpu: no vector kernels")
}

func attentionMaximumHidden(level, unsafe.Pointer, int, int, unsafe.Pointer, int32, unsafe.Pointer, unsafe.Pointer) {
	panic("cpu: no vector kernels")
}

func attentionExp(level, unsafe.Pointer, int, int, unsafe.Pointer, unsafe.Pointer, float32, float32) {
	panic("cpu: no vector kernels")
}

func attentionGradient(level, unsafe.Pointer, unsafe.Pointer, int, int, int, unsafe.Pointer, unsafe.Pointer, float32, float32) {
	panic("cpu: no vector kernels")
}
