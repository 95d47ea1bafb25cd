package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/device/cpu"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/blas/gonum"
	"gonum.org/v1/gonum/blas/testblas"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// What the Use functions ask for.
var (
	_ gorgonia.BLAS  = Implementation{}
	_ tensor.BLAS    = Implementation{}
	_ blas.Float32   = Implementation{}
	_ blas.Float64   = Implementation{}
	_ blas.Complex64 = Implementation{}
	_                = func() { blas32.Use(Implementation{}); blas64.Use(Implementation{}) }
)

// inSingle lets the suite for Dgemm test Sgemm: its cases are small numbers, exact in
// float32.
type inSingle struct{ Implementation }

func (i inSingle) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int,
	b []float64, ldb int, beta float64, c []float64, ldc int) {
	single := convert[float32](c)
	i.Sgemm(tA, tB, m, n, k, float32(alpha), convert[float32](a), lda, convert[float32](b), ldb, float32(beta), single, ldc)
	copy(c, convert[float64](single))
}

func convert[To, From float](from []From) []To {
	to := make([]To, len(from))
	for i, x := range from {
		to[i] = To(x)
	}
	return to
}

func TestGonumSuite(t *testing.T) {
	t.Run("Dgemm", func(t *testing.T) { testblas.TestDgemm(t, Implementation{}) })
	t.Run("Sgemm", func(t *testing.T) { testblas.TestDgemm(t, inSingle{}) })
	t.Run("Dsymm", func(t *testing.T) { testblas.DsymmTest(t, Implementation{}) })
	t.Run("Dtrsm", func(t *testing.T) { testblas.DtrsmTest(t, Implementation{}) })
	t.Run("Dsyrk", func(t *testing.T) { testblas.DsyrkTest(t, Implementation{}) })
	t.Run("Dsyr2k", func(t *testing.T) { testblas.Dsyr2kTest(t, Implementation{}) })
	t.Run("Dtrmm", func(t *testing.T) { testblas.DtrmmTest(t, Implementation{}) })
}

// call are the arguments of a gemm.
type call[T float] struct {
	tA, tB        blas.Transpose
	m, n, k       int
	alpha, beta   T
	a, b, c       []T
	lda, ldb, ldc int
}

func TestSgemmAgainstGonum(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		againstGonum(r, Implementation{}.Sgemm, gonum.Implementation{}.Sgemm, math.Ldexp(1, -24))
	})
}

func TestDgemmAgainstGonum(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		againstGonum(r, Implementation{}.Dgemm, gonum.Implementation{}.Dgemm, math.Ldexp(1, -53))
	})
}

// FuzzSgemm lets the fuzzer choose shapes, strides, scalars and mistakes.
func FuzzSgemm(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(r *rapid.T) {
		againstGonum(r, Implementation{}.Sgemm, gonum.Implementation{}.Sgemm, math.Ldexp(1, -24))
	}))
}

type gemmFunc[T float] = func(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)

// againstGonum draws a call, mistaken now and then, and demands gonum's panic, or its
// result within the bound of two roundings for each term, and nothing written beside c.
func againstGonum[T float](r *rapid.T, ours, gonums gemmFunc[T], epsilon float64) {
	x := drawCall[T](r)
	old := append([]T(nil), x.c...)
	want := append([]T(nil), x.c...)
	run := func(gemm gemmFunc[T], c []T) (message any) {
		defer func() { message = recover() }()
		gemm(x.tA, x.tB, x.m, x.n, x.k, x.alpha, x.a, x.lda, x.b, x.ldb, x.beta, c, x.ldc)
		return nil
	}
	wantPanic, gotPanic := run(gonums, want), run(ours, x.c)
	if wantPanic != gotPanic {
		r.Fatalf("%+v: panic %v, gonum's is %v", x, gotPanic, wantPanic)
	}
	if wantPanic != nil {
		return
	}
	for i, got := range x.c {
		if row, column := i/x.ldc, i%x.ldc; row >= x.m || column >= x.n {
			if got != old[i] && (got == got || old[i] == old[i]) {
				r.Fatalf("%+v: element %d, outside c, is %v and was %v", x, i, got, old[i])
			}
			continue
		}
		if got != got && want[i] != want[i] {
			continue // a stride, mistaken but legal, made a matrix of what lies between rows
		}
		if x.alpha == 0 && want[i] != want[i] && (x.beta == 0 && got == 0 || got == x.beta*old[i]) {
			continue // the same, which gonum multiplies by zero and we do not read
		}
		// Operands are within [−1, 1].
		size := math.Abs(float64(x.alpha))*float64(x.k) + math.Abs(float64(x.beta)*float64(old[i]))
		if x.beta == 0 {
			size = math.Abs(float64(x.alpha)) * float64(x.k)
		}
		if difference := math.Abs(float64(got) - float64(want[i])); !(difference <= 2*float64(x.k+3)*epsilon*size) {
			r.Fatalf("%+v: element %d is %v, gonum's %v", x, i, got, want[i])
		}
	}
}

// drawCall fills what belongs to no matrix with NaN, and c too when it is not to be read.
func drawCall[T float](r *rapid.T) call[T] {
	extent := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 70))
	transpose := rapid.SampledFrom([]blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans})
	scalar := rapid.SampledFrom([]T{0, 1, -1, 0.5, 3})
	x := call[T]{
		tA: transpose.Draw(r, "tA"), tB: transpose.Draw(r, "tB"),
		m: extent.Draw(r, "m"), n: extent.Draw(r, "n"), k: extent.Draw(r, "k"),
		alpha: scalar.Draw(r, "alpha"), beta: scalar.Draw(r, "beta"),
	}
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
	matrix := func(name string, rows, columns int, transposed, filled bool) (x []T, ld int) {
		if transposed {
			rows, columns = columns, rows
		}
		ld = max(1, columns) + rapid.IntRange(0, 3).Draw(r, name+" gap")
		x = make([]T, max(0, (rows-1)*ld+columns))
		for i := range x {
			x[i] = T(math.NaN())
			if i%ld < columns && filled {
				x[i] = T(2*random.Float64() - 1)
			}
		}
		return x, ld
	}
	x.a, x.lda = matrix("a", x.m, x.k, x.tA != blas.NoTrans, true)
	x.b, x.ldb = matrix("b", x.k, x.n, x.tB != blas.NoTrans, true)
	x.c, x.ldc = matrix("c", x.m, x.n, false, x.beta != 0)
	if mistakes := x.mistakes(); rapid.IntRange(0, 3).Draw(r, "mistaken") == 0 {
		rapid.SampledFrom(mistakes).Draw(r, "mistake")()
		rapid.SampledFrom(mistakes).Draw(r, "other mistake")()
	}
	return x
}

func (x *call[T]) mistakes() []func() {
	shorter := func(s []T) []T { return s[:max(0, len(s)-1)] }
	return []func(){
		func() { x.tA = 'x' }, func() { x.tB = 0 },
		func() { x.m = -1 }, func() { x.n = -1 }, func() { x.k = -1 },
		func() { x.lda-- }, func() { x.ldb-- }, func() { x.ldc-- }, func() { x.lda = 0 },
		func() { x.a = shorter(x.a) }, func() { x.b = shorter(x.b) }, func() { x.c = shorter(x.c) },
	}
}

// TestSpecialValues is where the package doc says that gonum does otherwise.
func TestSpecialValues(t *testing.T) {
	c := []float32{7}
	Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, 1, 1, 2, 1, []float32{0, 1}, 2, []float32{float32(math.Inf(1)), 1}, 1, 0, c, 1)
	if c[0] == c[0] {
		t.Errorf("0·Inf + 1 is %v, want NaN", c[0])
	}
	c[0] = 7
	Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, 1, 1, 1, 0, []float32{float32(math.NaN())}, 1, []float32{1}, 1, 2, c, 1)
	if c[0] != 14 {
		t.Errorf("with alpha = 0, c = 2·7 is %v", c[0])
	}
}

// TestScaledInBlocks crosses the border of what is scaled at a time.
func TestScaledInBlocks(t *testing.T) {
	const m, n, k = 5, productBytes / 8 / 2, 3
	a, b, c := make([]float64, m*k), make([]float64, k*n), make([]float64, m*n)
	for i := range a {
		a[i] = float64(i)
	}
	for i := range b {
		b[i] = float64(i % n)
	}
	Implementation{}.Dgemm(blas.NoTrans, blas.NoTrans, m, n, k, 2, a, k, b, n, 0, c, n)
	for i := range m {
		for j := range n {
			if want := 2 * float64(9*i+3) * float64(j); c[i*n+j] != want {
				t.Fatalf("element %d %d is %v, want %v", i, j, c[i*n+j], want)
			}
		}
	}
}

// TestThreads demands equal bits from any number of threads and callers.
func TestThreads(t *testing.T) {
	const n = 150
	random := rand.New(rand.NewPCG(1, 2))
	a, want := make([]float32, n*n), make([]float32, n*n)
	for i := range a {
		a[i] = float32(random.NormFloat64())
	}
	Implementation{}.Sgemm(blas.NoTrans, blas.Trans, n, n, n, 1, a, n, a, n, 0, want, n)
	for _, workers := range []int{1, 3} {
		d, err := cpu.New(cpu.Options{Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		on := On(d)
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				got := make([]float32, n*n)
				for range 5 {
					on.Sgemm(blas.NoTrans, blas.Trans, n, n, n, 1, a, n, a, n, 0, got, n)
					for i := range got {
						if got[i] != want[i] {
							t.Errorf("%d workers: element %d is %v, not %v", workers, i, got[i], want[i])
							return
						}
					}
				}
			})
		}
		callers.Wait()
	}
}

// BenchmarkGemm reports how many times faster a product is than gonum's.
func BenchmarkGemm(b *testing.B) {
	for _, n := range []int{16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("float32/%d", n), func(b *testing.B) {
			benchmark(b, n, Implementation{}.Sgemm, gonum.Implementation{}.Sgemm)
		})
		b.Run(fmt.Sprintf("float64/%d", n), func(b *testing.B) {
			benchmark(b, n, Implementation{}.Dgemm, gonum.Implementation{}.Dgemm)
		})
	}
}

func benchmark[T float](b *testing.B, n int, ours, gonums gemmFunc[T]) {
	a, c := make([]T, n*n), make([]T, n*n)
	for i := range a {
		a[i] = T(i%17) - 8
	}
	run := func(gemm gemmFunc[T]) { gemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, a, n, a, n, 0, c, n) }
	run(ours)
	var theirs float64
	for b.Loop() {
		run(ours)
		b.StopTimer()
		start := time.Now()
		run(gonums)
		theirs += time.Since(start).Seconds()
		b.StartTimer()
	}
	b.ReportMetric(theirs/b.Elapsed().Seconds(), "×gonum")
	b.ReportMetric(2*float64(n*n*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
