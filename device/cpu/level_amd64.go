//go:build amd64 && !noasm

package cpu

import "golang.org/x/sys/cpu"

// bestLevel asks for the operating system's support of the registers as well.
func bestLevel() level {
	switch {
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasFMA:
		return levelAVX512
	case cpu.X86.HasAVX2 && cpu.X86.HasFMA:
		return levelAVX2
	}
	return levelGo
}

// vectorized reports whether the kernels over rows of T have assembly at l: float32
// has, float64 is there to check it by.
func vectorized[T float](l level) bool { return l != levelGo && single[T]() }
