//go:build !openblas

package openblas

// Linked reports whether OpenBLAS is there.
const Linked = false

const absent = "openblas: built without the tag openblas"

func SetThreads(int)                                     { panic(absent) }
func Config() string                                     { return "" }
func Sgemm(m, n, k int, a, b, c Matrix, accumulate bool) { panic(absent) }
func Dgemm(m, n, k int, a, b, c Matrix, accumulate bool) { panic(absent) }
