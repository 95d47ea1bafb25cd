//go:build openblas

package openblas

/*
#cgo LDFLAGS: -lopenblas
#cgo noescape lethe_sgemm
#cgo nocallback lethe_sgemm
#cgo noescape lethe_dgemm
#cgo nocallback lethe_dgemm

// The header stands in different places in different distributions; this is all of
// it that we need.
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
	const float *b, int ldb, float beta, float *c, int ldc);
void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
	const double *b, int ldb, double beta, double *c, int ldc);
void openblas_set_num_threads(int n);
char *openblas_get_config(void);

enum { row_major = 101, as_is = 111, transposed = 112 };

static void lethe_sgemm(int ta, int tb, int m, int n, int k, const void *a, int lda, const void *b, int ldb,
	float beta, void *c, int ldc) {
	cblas_sgemm(row_major, ta ? transposed : as_is, tb ? transposed : as_is, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

static void lethe_dgemm(int ta, int tb, int m, int n, int k, const void *a, int lda, const void *b, int ldb,
	double beta, void *c, int ldc) {
	cblas_dgemm(row_major, ta ? transposed : as_is, tb ? transposed : as_is, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}
*/
import "C"

// Linked reports whether OpenBLAS is there.
const Linked = true

func init() { SetThreads(1) }

// SetThreads sets with how many threads of its own OpenBLAS computes one product: 1 at the
// start, as the device has threads already.
func SetThreads(n int) { C.openblas_set_num_threads(C.int(n)) }

// Config is OpenBLAS' version and the processor it has chosen kernels for.
func Config() string { return C.GoString(C.openblas_get_config()) }

// Sgemm computes c = a·b, or c += a·b, in float32; a is m×k, b k×n, and c, not
// transposed, m×n. Extents and strides must fit an int32.
func Sgemm(m, n, k int, a, b, c Matrix, accumulate bool) {
	var beta C.float
	if accumulate {
		beta = 1
	}
	C.lethe_sgemm(flag(a.Transposed), flag(b.Transposed), C.int(m), C.int(n), C.int(k), a.Data, C.int(a.Stride),
		b.Data, C.int(b.Stride), beta, c.Data, C.int(c.Stride))
}

// Dgemm is Sgemm in float64.
func Dgemm(m, n, k int, a, b, c Matrix, accumulate bool) {
	var beta C.double
	if accumulate {
		beta = 1
	}
	C.lethe_dgemm(flag(a.Transposed), flag(b.Transposed), C.int(m), C.int(n), C.int(k), a.Data, C.int(a.Stride),
		b.Data, C.int(b.Stride), beta, c.Data, C.int(c.Stride))
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
