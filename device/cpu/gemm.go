package cpu

import (
	"unsafe"
)

// gemmTasks are the argument blocks of matrix products.
type gemmTasks[T float] struct{}

// gemmScratch is the scratch, in bytes, that gemmTile may need from a worker.
const gemmScratch = 4 << 20

// gemmTile computes c[m×n] = a[m×k]·b[k×n], plus the old c when accumulate is
// set, on the calling goroutine. Element (i, j) of an operand lies at
// i·row + j·column elements from its pointer; c's columns are contiguous.
// scratch has gemmScratch bytes, aligned to 64.
func gemmTile[T float](l level, m, n, k int, a unsafe.Pointer, aRow, aColumn int, b unsafe.Pointer, bRow, bColumn int,
	c unsafe.Pointer, cRow int, accumulate bool, scratch unsafe.Pointer) {
	at := func(p unsafe.Pointer, i int) *T { return (*T)(unsafe.Add(p, i*int(unsafe.Sizeof(*new(T))))) }
	for i := range m {
		for j := range n {
			var sum T
			if accumulate {
				sum = *at(c, i*cRow+j)
			}
			for p := range k {
				sum += *at(a, i*aRow+p*aColumn) * *at(b, p*bRow+j*bColumn)
			}
			*at(c, i*cRow+j) = sum
		}
	}
}
