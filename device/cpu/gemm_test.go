package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/internal/openblas"
	"pgregory.net/rapid"
)

// gemmErrorFactor is c of the bound |error| ≤ c·(k+1)·ε·(Σ|a·b| + |old c|), with
// ε half the distance from 1 to the next number: in the worst order a product
// goes through one rounding of its own and k of sums, and one with the old c.
const gemmErrorFactor = 1.01

// gemmCase is a MatMul to test. Batch 0 means rank 2.
type gemmCase struct {
	batch, m, n, k int
	a, b, dst      gemmLayout
	accumulate     bool
}

// gemmLayout says how an operand lies in memory.
type gemmLayout struct {
	transposed  bool
	repeats     bool // one matrix for the whole batch
	gap         int  // elements after each row (column, if transposed)
	rowsBetween int  // rows after each matrix
	offset      int  // elements before the first
}

// gemmOperands are the tensors of a product. Everything around their elements is
// NaN, so that one read too many shows in the result.
type gemmOperands struct {
	a, b, dst device.Tensor
	guarded   device.Tensor // the whole buffer of dst
}

const gemmGuard = 64 // elements on either side

func TestMatMulAgainstNaive(t *testing.T) {
	for _, l := range gemmTestLevels(t) {
		q := gemmTestQueue(t, l, 2)
		t.Run(l+"/float32", rapid.MakeCheck(func(r *rapid.T) {
			checkGemmCase[float32](r, q, drawGemmCase(r, 40), device.Float32)
		}))
		t.Run(l+"/float64", rapid.MakeCheck(func(r *rapid.T) {
			checkGemmCase[float64](r, q, drawGemmCase(r, 40), device.Float64)
		}))
	}
}

// TestMatMulLarge crosses the borders of depth blocks, tiles and slabs.
func TestMatMulLarge(t *testing.T) {
	shapes := []gemmCase{
		{m: 1, n: 1, k: 1100}, {m: 7, n: 1057, k: 300}, {m: 1601, n: 5, k: 70},
		{m: 101, n: 131, k: 600}, {batch: 3, m: 130, n: 140, k: 257},
	}
	if !testing.Short() {
		shapes = append(shapes, gemmCase{m: 130, n: 97, k: 1030}, gemmCase{m: 1601, n: 1100, k: 9}, gemmCase{m: 300, n: 300, k: 300})
	}
	for _, l := range gemmTestLevels(t) {
		q := gemmTestQueue(t, l, 2)
		for i, p := range shapes {
			p.a.transposed, p.b.transposed, p.accumulate = i&1 == 0, i&2 == 0, i%3 == 0
			t.Run(fmt.Sprintf("%s/%dx%dx%dx%d", l, p.batch, p.m, p.n, p.k), func(t *testing.T) {
				checkGemmCase[float32](t, q, p, device.Float32)
				checkGemmCase[float64](t, q, p, device.Float64)
			})
		}
	}
}

// FuzzMatMul lets the fuzzer choose shapes and strides.
func FuzzMatMul(f *testing.F) {
	q := gemmTestQueue(f, gemmTestLevels(f)[0], 2)
	f.Fuzz(rapid.MakeFuzz(func(r *rapid.T) {
		checkGemmCase[float32](r, q, drawGemmCase(r, 70), device.Float32)
	}))
}

func drawGemmCase(r *rapid.T, largest int) gemmCase {
	extent := rapid.OneOf(rapid.IntRange(0, largest), rapid.SampledFrom([]int{1, 6, 12, 16, 32, 96, 97}))
	p := gemmCase{
		batch:      rapid.IntRange(0, 3).Draw(r, "batch"),
		m:          extent.Draw(r, "m"),
		n:          extent.Draw(r, "n"),
		k:          rapid.OneOf(extent, rapid.SampledFrom([]int{256, 257, 515})).Draw(r, "k"),
		a:          drawGemmLayout(r, "a"),
		b:          drawGemmLayout(r, "b"),
		dst:        drawGemmLayout(r, "dst"),
		accumulate: rapid.Bool().Draw(r, "accumulate"),
	}
	p.dst.transposed, p.dst.repeats = false, false
	return p
}

func drawGemmLayout(r *rapid.T, name string) gemmLayout {
	return gemmLayout{
		transposed:  rapid.Bool().Draw(r, name+" transposed"),
		repeats:     rapid.Bool().Draw(r, name+" repeats"),
		gap:         rapid.IntRange(0, 5).Draw(r, name+" gap"),
		rowsBetween: rapid.IntRange(0, 2).Draw(r, name+" rows between"),
		offset:      rapid.IntRange(0, 3).Draw(r, name+" offset"),
	}
}

// gemmTestLevels are the kernel levels of this machine, best first, or the one that
// LETHE_CPU_LEVEL asks for.
func gemmTestLevels(t testing.TB) []string {
	t.Helper()
	if l := os.Getenv("LETHE_CPU_LEVEL"); l != "" {
		return []string{l}
	}
	var names []string
	for l := int(bestLevel()); l >= 0; l-- {
		names = append(names, level(l).String())
	}
	if openblas.Linked {
		names = append(names, bestLevel().String()+openBLASSuffix)
	}
	return names
}

func gemmTestQueue(t testing.TB, level string, workers int) *queue {
	t.Helper()
	d, err := New(Options{Workers: workers, Level: level})
	if err != nil {
		t.Fatal(err)
	}
	q := newQueue(d)
	t.Cleanup(func() {
		q.Close()
		d.Close()
	})
	return q
}

// checkGemmCase runs p on random numbers and compares with sums in float64.
func checkGemmCase[T float](t rapid.TB, q *queue, p gemmCase, dtype device.DType) {
	o := newGemmOperands[T](p, dtype, 1)
	defer o.free()
	old := make([]T, 0, o.dst.Len())
	p.each(func(b, i, j int) { old = append(old, *gemmElement[T](o.dst, b, i, j)) })
	q.MatMul(o.dst, o.a, o.b, p.accumulate)

	epsilon := math.Ldexp(1, -24)
	if dtype == device.Float64 {
		epsilon = math.Ldexp(1, -53)
	}
	as, bs := widened[T](o.a), widened[T](o.b.Transpose(o.b.Rank()-2, o.b.Rank()-1))
	at := 0
	p.each(func(b, i, j int) {
		want, size := 0.0, 0.0
		if p.accumulate {
			want, size = float64(old[at]), math.Abs(float64(old[at]))
		}
		column := bs[(b*p.n+j)*p.k:]
		for x, v := range as[(b*p.m+i)*p.k:][:p.k] {
			want, size = want+v*column[x], size+math.Abs(v*column[x])
		}
		got := float64(*gemmElement[T](o.dst, b, i, j))
		// The sum to compare with has roundings of float64 itself.
		bound := gemmErrorFactor * float64(p.k+1) * (epsilon + math.Ldexp(1, -53)) * size
		if !(math.Abs(got-want) <= bound) {
			t.Fatalf("%+v: element %d %d %d is %g, want %g ± %g", p, b, i, j, got, want, bound)
		}
		*gemmElement[T](o.dst, b, i, j) = T(math.NaN())
		at++
	})
	for i, x := range elements[T](o.guarded) {
		if x == x {
			t.Fatalf("%+v: element %d of the buffer, outside dst, was overwritten by %g", p, i, x)
		}
	}
}

// free gives the memory back.
func (o gemmOperands) free() {
	for _, t := range []device.Tensor{o.a, o.b, o.dst} {
		t.Buffer().Free()
	}
}

// each visits every element of dst.
func (p gemmCase) each(f func(b, i, j int)) {
	for b := range max(1, p.batch) {
		for i := range p.m {
			for j := range p.n {
				f(b, i, j)
			}
		}
	}
}

// newGemmOperands fills the operands of p with numbers in [−1, 1), and dst, unless it
// is added to, with NaN.
func newGemmOperands[T float](p gemmCase, dtype device.DType, seed uint64) gemmOperands {
	a, _ := newGemmOperand[T](dtype, p.batch, p.m, p.k, p.a)
	b, _ := newGemmOperand[T](dtype, p.batch, p.k, p.n, p.b)
	dst, guarded := newGemmOperand[T](dtype, p.batch, p.m, p.n, p.dst)
	r := gemmRandom(seed)
	gemmRandomize[T](r, a)
	gemmRandomize[T](r, b)
	if p.accumulate {
		gemmRandomize[T](r, dst)
	}
	return gemmOperands{a, b, dst, guarded}
}

// newOperand returns a tensor of NaN and the whole of its buffer.
func newGemmOperand[T float](dtype device.DType, batch, rows, columns int, l gemmLayout) (x, whole device.Tensor) {
	matrices := max(1, batch)
	if l.repeats {
		matrices = 1
	}
	outer, inner := rows, columns
	if l.transposed {
		outer, inner = columns, rows
	}
	shape := []int{matrices, outer + l.rowsBetween, inner + l.gap}
	n := shape[0]*shape[1]*shape[2] + 2*gemmGuard + l.offset
	memory, err := allocate(int64(n * dtype.Size()))
	if err != nil {
		panic(err)
	}
	whole = device.NewTensor(memory, 0, dtype, n)
	for i := range elements[T](whole) {
		elements[T](whole)[i] = T(math.NaN())
	}
	x = device.NewTensor(memory, int64((gemmGuard+l.offset)*dtype.Size()), dtype, shape...)
	x = x.Slice(1, 0, outer).Slice(2, 0, inner)
	if l.transposed {
		x = x.Transpose(1, 2)
	}
	switch {
	case batch == 0:
		x = x.Index(0)
	case l.repeats:
		x = x.Index(0).Broadcast(batch, rows, columns)
	}
	return x, whole
}

// element is the address of an element of a matrix, or of item b of a batch.
func gemmElement[T float](t device.Tensor, b, i, j int) *T {
	r := t.Rank()
	at := i*t.Stride(r-2) + j*t.Stride(r-1)
	if r == 3 {
		at += b * t.Stride(0)
	}
	return (*T)(unsafe.Add(t.Pointer(), at*t.DType().Size()))
}

// gemmElements visits the elements of a matrix or a batch in row-major order.
func gemmElements[T float](t device.Tensor, f func(x *T)) {
	batch, rank := 1, t.Rank()
	if rank == 3 {
		batch = t.Dim(0)
	}
	for b := range batch {
		for i := range t.Dim(rank - 2) {
			for j := range t.Dim(rank - 1) {
				f(gemmElement[T](t, b, i, j))
			}
		}
	}
}

func gemmRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

func gemmRandomize[T float](r *rand.Rand, t device.Tensor) {
	gemmElements(t, func(x *T) { *x = T(2*r.Float64() - 1) })
}

// widened returns the elements, row by row.
func widened[T float](t device.Tensor) []float64 {
	out := make([]float64, 0, t.Len())
	gemmElements(t, func(x *T) { out = append(out, float64(*x)) })
	return out
}
