package blas

import (
	"sync"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Implementation is a BLAS: it implements blas.Float32, Float64, Complex64 and Complex128
// of gonum. The zero value uses all processors; see [On] for fewer. Its methods may be
// called by several goroutines at a time.
type Implementation struct {
	gonum.Implementation
	callers *callers // nil for those of all processors
}

// On returns an Implementation whose matrix products run on d, with as many threads as
// that has workers. It must not be used after d is closed.
func On(d *cpu.Device) Implementation {
	return Implementation{callers: &callers{device: d}}
}

// Sgemm computes c = alpha·op(a)·op(b) + beta·c, where op(a) is m×k, op(b) k×n and c m×n,
// and op transposes its argument or not. Matrices are row-major, with rows that begin
// lda, ldb and ldc elements apart.
func (i Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int,
	b []float32, ldb int, beta float32, c []float32, ldc int) {
	gemm(i, device.Float32, tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm is [Implementation.Sgemm] in float64.
func (i Implementation) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int,
	b []float64, ldb int, beta float64, c []float64, ldc int) {
	gemm(i, device.Float64, tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

type float interface{ float32 | float64 }

// productBytes bounds the memory for products that are scaled by alpha before they
// are added to c.
const productBytes = 4 << 20

func gemm[T float](i Implementation, d device.DType, tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int,
	b []T, ldb int, beta T, c []T, ldc int) {
	checkGemm(tA, tB, m, n, k, a, lda, b, ldb, c, ldc)
	if m == 0 || n == 0 {
		return
	}
	if alpha == 0 || k == 0 {
		scale(m, n, beta, c, ldc)
		return
	}
	w := i.caller()
	defer w.release()
	left := operand(&w.a, d, tA, m, k, a, lda)
	right := operand(&w.b, d, tB, k, n, b, ldb)
	if alpha == 1 {
		if beta != 0 {
			scale(m, n, beta, c, ldc)
		}
		w.queue.MatMul(operand(&w.c, d, blas.NoTrans, m, n, c, ldc), left, right, beta != 0)
		return
	}
	rows := min(m, max(1, productBytes/(n*d.Size())))
	product := make([]T, rows*n)
	for first := 0; first < m; first += rows {
		last := min(m, first+rows)
		w.queue.MatMul(operand(&w.c, d, blas.NoTrans, last-first, n, product, n), left.Slice(0, first, last), right, false)
		for i := first; i < last; i++ {
			combine(c[i*ldc:][:n], alpha, product[(i-first)*n:][:n], beta)
		}
	}
}

// scale computes c = beta·c, without reading c when beta is 0.
func scale[T float](m, n int, beta T, c []T, ldc int) {
	if beta == 1 {
		return
	}
	for i := range m {
		row := c[i*ldc:][:n]
		if beta == 0 {
			clear(row)
			continue
		}
		for j := range row {
			row[j] *= beta
		}
	}
}

// combine computes c = alpha·product + beta·c, without reading c when beta is 0.
func combine[T float](c []T, alpha T, product []T, beta T) {
	switch beta {
	case 0:
		for j, x := range product {
			c[j] = alpha * x
		}
	case 1:
		for j, x := range product {
			c[j] += alpha * x
		}
	default:
		for j, x := range product {
			c[j] = beta*c[j] + alpha*x
		}
	}
}

// The messages of gonum.org/v1/gonum/blas/gonum/errors.go.
const (
	badTranspose = "blas: illegal transpose"
	mLT0         = "blas: m < 0"
	nLT0         = "blas: n < 0"
	kLT0         = "blas: k < 0"
	badLdA       = "blas: bad leading dimension of A"
	badLdB       = "blas: bad leading dimension of B"
	badLdC       = "blas: bad leading dimension of C"
	shortA       = "blas: insufficient length of a"
	shortB       = "blas: insufficient length of b"
	shortC       = "blas: insufficient length of c"
)

// checkGemm panics where gonum does, in the same order.
func checkGemm[T float](tA, tB blas.Transpose, m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int) {
	for _, t := range [...]blas.Transpose{tA, tB} {
		if t != blas.NoTrans && t != blas.Trans && t != blas.ConjTrans {
			panic(badTranspose)
		}
	}
	aRows, aColumns, bRows, bColumns := m, k, k, n
	if tA != blas.NoTrans {
		aRows, aColumns = k, m
	}
	if tB != blas.NoTrans {
		bRows, bColumns = n, k
	}
	switch {
	case m < 0:
		panic(mLT0)
	case n < 0:
		panic(nLT0)
	case k < 0:
		panic(kLT0)
	case lda < max(1, aColumns):
		panic(badLdA)
	case ldb < max(1, bColumns):
		panic(badLdB)
	case ldc < max(1, n):
		panic(badLdC)
	case m == 0 || n == 0:
	case len(a) < (aRows-1)*lda+aColumns:
		panic(shortA)
	case len(b) < (bRows-1)*ldb+bColumns:
		panic(shortB)
	case len(c) < (m-1)*ldc+n:
		panic(shortC)
	}
}

// callers are the callers of one device that are not calling.
type callers struct {
	device *cpu.Device
	mu     sync.Mutex
	idle   []*caller
}

// caller has what one call needs at a time.
type caller struct {
	home    *callers
	queue   device.Queue
	a, b, c memory
}

// everyProcessor is shared by the zero Implementations of a program, for as long as it
// runs: its threads rest when there is no product to compute.
var everyProcessor = sync.OnceValue(func() *callers {
	d, err := cpu.New(cpu.Options{})
	if err != nil {
		panic("blas: " + err.Error())
	}
	return &callers{device: d}
})

// caller takes an idle caller, or makes one.
func (i Implementation) caller() *caller {
	home := i.callers
	if home == nil {
		home = everyProcessor()
	}
	home.mu.Lock()
	defer home.mu.Unlock()
	if last := len(home.idle) - 1; last >= 0 {
		w := home.idle[last]
		home.idle = home.idle[:last]
		return w
	}
	return &caller{home: home, queue: home.device.NewQueue()}
}

// release gives the caller back and lets go of the matrices.
func (w *caller) release() {
	w.a, w.b, w.c = memory{}, memory{}, memory{}
	w.home.mu.Lock()
	defer w.home.mu.Unlock()
	w.home.idle = append(w.home.idle, w)
}
