// Package blas lends Lethe's matrix products to programs that are written against gonum's
// BLAS. One line speeds up a stock Gorgonia program:
//
//	gorgonia.Use(blas.Implementation{})
//
// and so do tensor.Use for gorgonia.org/tensor, and blas32.Use and blas64.Use for
// gonum, package mat included. Sgemm and Dgemm are those of package device/cpu, on all
// processors; everything else is gonum's own.
//
// # What is the same as in gonum, and what is not
//
// Arguments are checked alike, and panics have the same messages. With beta = 0, c is not
// read. Results do not depend on the number of processors. They are rounded otherwise
// than gonum's, as sums are taken in another order. With alpha = 0, a and b are not read,
// as the BLAS standard says, while gonum multiplies them by zero. And where an element of
// a is zero, gonum may not look at the row of b that it meets; here it is multiplied, so
// that 0·Inf is a NaN.
package blas
