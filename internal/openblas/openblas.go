// Package openblas calls the matrix products of OpenBLAS, which it links to (Debian:
// libopenblas-dev) in builds with the tag openblas. In others it only says that it is
// not there.
package openblas

import "unsafe"

// Matrix is an operand: its first element, whether it is transposed, and the distance of
// its rows (of its columns, if it is transposed) in elements.
type Matrix struct {
	Data       unsafe.Pointer
	Transposed bool
	Stride     int
}
