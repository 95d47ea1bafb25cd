package cpu

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"pgregory.net/rapid"
)

// TestMatMulBits runs the same products with any number of workers, with a pool
// that is busy, in smaller slabs and through gemmTile.
func TestMatMulBits(t *testing.T) {
	shapes := []gemmCase{
		{m: 90, n: 80, k: 300}, {m: 64, n: 64, k: 64}, {m: 13, n: 300, k: 520, a: gemmLayout{transposed: true}},
		{m: 130, n: 33, k: 257, b: gemmLayout{transposed: true}, accumulate: true},
		{batch: 9, m: 70, n: 50, k: 60}, {m: 300, n: 40, k: 290, a: gemmLayout{transposed: true}},
	}
	if !testing.Short() {
		shapes = append(shapes, gemmCase{batch: 2, m: 170, n: 170, k: 170, accumulate: true},
			gemmCase{m: 40, n: 790, k: 270, b: gemmLayout{transposed: true}, accumulate: true})
	}
	for _, l := range gemmTestLevels(t) {
		for _, p := range shapes {
			t.Run(l+"/"+p.name(), func(t *testing.T) {
				gemmBitsOf[float32](t, l, p, device.Float32)
				gemmBitsOf[float64](t, l, p, device.Float64)
			})
		}
	}
}

func gemmBitsOf[T float](t *testing.T, level string, p gemmCase, dtype device.DType) {
	multiply := func(f func(q *queue, o gemmOperands), workers int) []float64 {
		o := newGemmOperands[T](p, dtype, 3)
		defer o.free()
		f(gemmTestQueue(t, level, workers), o)
		return widened[T](o.dst)
	}
	matMul := func(q *queue, o gemmOperands) { q.MatMul(o.dst, o.a, o.b, p.accumulate) }
	want := multiply(matMul, 1)
	same := func(how string, got []float64) {
		t.Helper()
		for i := range want {
			if math.Float64bits(want[i]) != math.Float64bits(got[i]) {
				t.Fatalf("%s: element %d is %g, not %g", how, i, got[i], want[i])
			}
		}
	}
	for _, workers := range []int{2, 3, 5} {
		same(fmt.Sprint(workers, " workers"), multiply(matMul, workers))
	}
	same("busy pool", multiply(func(q *queue, o gemmOperands) {
		q.dev.pool.mu.Lock()
		defer q.dev.pool.mu.Unlock()
		matMul(q, o)
	}, 3))
	same("small slabs", multiply(func(q *queue, o gemmOperands) {
		defer func(l gemmLimit) { gemmSharedLimit = l }(gemmSharedLimit)
		gemmSharedLimit = gemmLimit{rows: 48, columns: 64, steps: gemmDepth}
		matMul(q, o)
	}, 2))
	if p.batch == 0 && !strings.HasSuffix(level, openBLASSuffix) {
		same("gemmTile", multiply(func(q *queue, o gemmOperands) {
			q.reserve(gemmScratch)
			gemmTile[T](q.dev.level, p.m, p.n, p.k, o.a.Pointer(), o.a.Stride(0), o.a.Stride(1), o.b.Pointer(),
				o.b.Stride(0), o.b.Stride(1), o.dst.Pointer(), o.dst.Stride(0), p.accumulate, q.scratch[0].base)
		}, 1))
	}
}

// TestMatMulRowsBits multiplies the first rows alone: they have the bits that they have
// among others, whichever way few rows are multiplied.
func TestMatMulRowsBits(t *testing.T) {
	for _, l := range gemmTestLevels(t) {
		if strings.HasSuffix(l, openBLASSuffix) {
			continue
		}
		q := gemmTestQueue(t, l, 2)
		t.Run(l+"/float32", rapid.MakeCheck(func(r *rapid.T) { rowsBits[float32](r, q, device.Float32) }))
		t.Run(l+"/float64", rapid.MakeCheck(func(r *rapid.T) { rowsBits[float64](r, q, device.Float64) }))
	}
}

func rowsBits[T float](r *rapid.T, q *queue, dtype device.DType) {
	p := gemmCase{
		m: 60, n: rapid.IntRange(1, 80).Draw(r, "n"), k: rapid.SampledFrom([]int{1, 16, 31, 256, 272, 300, 528}).Draw(r, "k"),
		a: drawGemmLayout(r, "a"), b: drawGemmLayout(r, "b"), dst: drawGemmLayout(r, "dst"), accumulate: rapid.Bool().Draw(r, "accumulate"),
	}
	p.dst.transposed = false
	rows := rapid.IntRange(1, 40).Draw(r, "rows")
	whole, alone := newGemmOperands[T](p, dtype, 7), newGemmOperands[T](p, dtype, 7)
	defer whole.free()
	defer alone.free()
	q.MatMul(whole.dst, whole.a, whole.b, p.accumulate)
	q.MatMul(alone.dst.Slice(0, 0, rows), alone.a.Slice(0, 0, rows), alone.b, p.accumulate)
	for i := range rows {
		for j := range p.n {
			if x, y := *gemmElement[T](whole.dst, 0, i, j), *gemmElement[T](alone.dst, 0, i, j); x != y {
				r.Fatalf("%+v: element %d %d of %d rows is %g, and %g among all", p, i, j, rows, y, x)
			}
		}
	}
	for i, x := range elements[T](alone.guarded) {
		first := (int(alone.dst.Offset()))/dtype.Size() + rows*alone.dst.Stride(0)
		if i >= first && x == x && !p.accumulate {
			r.Fatalf("%+v: element %d, behind the %d rows, was overwritten", p, i, rows)
		}
	}
}

// TestGemmTileAgainstNaive draws strides that MatMul's contract does not allow.
func TestGemmTileAgainstNaive(t *testing.T) {
	for _, l := range gemmTestLevels(t) {
		q := gemmTestQueue(t, l, 1)
		q.reserve(gemmScratch)
		t.Run(l, rapid.MakeCheck(func(r *rapid.T) {
			extent := rapid.IntRange(0, 40)
			m, n, k := extent.Draw(r, "m"), extent.Draw(r, "n"), extent.Draw(r, "k")
			accumulate := rapid.Bool().Draw(r, "accumulate")
			p := gemmCase{batch: 1, m: m, n: 3 * n, k: 3 * k}
			o := newGemmOperands[float32](p, device.Float32, 5)
			defer o.free()
			// Every third column of a, every third row and column of b.
			gemmRandomize[float32](gemmRandom(7), o.dst)
			old := widened[float32](o.dst)
			gemmTile[float32](q.dev.level, m, n, k, o.a.Pointer(), 3*k, 3, o.b.Pointer(), 3*(3*n), 3,
				o.dst.Pointer(), 3*n, accumulate, q.scratch[0].base)
			for i := range m {
				for j := range 3 * n {
					want, size := old[i*3*n+j], math.Abs(old[i*3*n+j])
					if j < n && !accumulate {
						want, size = 0, 0
					}
					for x := 0; x < k && j < n; x++ {
						term := float64(*gemmElement[float32](o.a, 0, i, 3*x)) * float64(*gemmElement[float32](o.b, 0, 3*x, 3*j))
						want, size = want+term, size+math.Abs(term)
					}
					got := float64(*gemmElement[float32](o.dst, 0, i, j))
					if !(math.Abs(got-want) <= gemmErrorFactor*float64(k+1)*math.Ldexp(1, -24)*size) {
						t.Fatalf("%d×%d×%d: element %d %d is %g, want %g", m, n, k, i, j, got, want)
					}
				}
			}
		}))
	}
}

func TestMatMulOfNothing(t *testing.T) {
	for _, l := range gemmTestLevels(t) {
		q := gemmTestQueue(t, l, 2)
		for _, accumulate := range []bool{false, true} {
			o := newGemmOperands[float32](gemmCase{batch: 2, m: 20, n: 21, accumulate: accumulate}, device.Float32, 1)
			want := widened[float32](o.dst)
			if !accumulate {
				clear(want)
			}
			q.MatMul(o.dst, o.a, o.b, accumulate)
			for i, x := range widened[float32](o.dst) {
				if x != want[i] {
					t.Fatalf("k = 0, accumulate %v: element %d is %g, want %g", accumulate, i, x, want[i])
				}
			}
			// The same operands without memory of their own: their strides lead nowhere.
			nowhere, err := q.dev.Alloc(device.OnDevice, 0)
			if err != nil {
				t.Fatal(err)
			}
			a := device.NewTensor(nowhere, 0, device.Float32, 0, 2, 20).Transpose(0, 1).Transpose(1, 2)
			b := device.NewTensor(nowhere, 0, device.Float32, 0, 2, 21).Transpose(0, 1)
			q.MatMul(o.dst, a, b, accumulate)
			for i, x := range widened[float32](o.dst) {
				if x != want[i] {
					t.Fatalf("no memory, accumulate %v: element %d is %g, want %g", accumulate, i, x, want[i])
				}
			}
			o.free()
		}
	}
}

// TestMatMulPropagates puts a NaN or an infinity into one element: it reaches its
// row or column of dst, all of it and nothing else.
func TestMatMulPropagates(t *testing.T) {
	for _, l := range gemmTestLevels(t) {
		q := gemmTestQueue(t, l, 2)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			p := gemmCase{m: 97, n: 67, k: 300}
			for _, at := range [][2]int{{0, 0}, {50, 123}, {96, 299}} {
				o := newGemmOperands[float32](p, device.Float32, 1)
				*gemmElement[float32](o.a, 0, at[0], at[1]) = bad
				q.MatMul(o.dst, o.a, o.b, false)
				checkFinite(t, o.dst, func(i, j int) bool { return i != at[0] })
				o.free()

				o = newGemmOperands[float32](p, device.Float32, 1)
				*gemmElement[float32](o.b, 0, at[1], at[0]%p.n) = bad
				q.MatMul(o.dst, o.a, o.b, false)
				checkFinite(t, o.dst, func(i, j int) bool { return j != at[0]%p.n })
				o.free()
			}
		}
	}
}

func checkFinite(t *testing.T, x device.Tensor, want func(i, j int) bool) {
	t.Helper()
	for i := range x.Dim(0) {
		for j := range x.Dim(1) {
			v := *gemmElement[float32](x, 0, i, j)
			if finite := v-v == 0; finite != want(i, j) {
				t.Fatalf("element %d %d is %g", i, j, v)
			}
		}
	}
}

func TestMatMulAllocatesNothing(t *testing.T) {
	for _, l := range gemmTestLevels(t) {
		q := gemmTestQueue(t, l, 2)
		for _, p := range []gemmCase{
			{m: 20, n: 20, k: 20}, {m: 200, n: 200, k: 200}, {batch: 8, m: 64, n: 64, k: 65},
			{batch: 2, m: 170, n: 170, k: 170, b: gemmLayout{transposed: true}},
		} {
			o := newGemmOperands[float32](p, device.Float32, 1)
			if n := testing.AllocsPerRun(3, func() { q.MatMul(o.dst, o.a, o.b, false) }); n != 0 {
				t.Errorf("%s %s: %v allocations", l, p.name(), n)
			}
			q.reserve(gemmScratch)
			if n := testing.AllocsPerRun(3, func() {
				gemmTile[float32](q.dev.level, p.m, p.n, p.k, o.a.Pointer(), p.k, 1, o.b.Pointer(), p.n, 1,
					o.dst.Pointer(), p.n, false, q.scratch[0].base)
			}); n != 0 {
				t.Errorf("%s %s: %v allocations in gemmTile", l, p.name(), n)
			}
			o.free()
		}
	}
}

func TestMatMulRejects(t *testing.T) {
	q := gemmTestQueue(t, "go", 1)
	buffer, err := allocate(1 << 12)
	if err != nil {
		t.Fatal(err)
	}
	defer buffer.Free()
	at := func(d device.DType, shape ...int) device.Tensor { return device.NewTensor(buffer, 0, d, shape...) }
	f32 := func(shape ...int) device.Tensor { return at(device.Float32, shape...) }
	for want, x := range map[string][3]device.Tensor{
		"ranks":       {f32(2, 2), f32(1, 2, 2), f32(1, 2, 2)},
		"dtypes":      {f32(2, 2), f32(2, 2), at(device.Float64, 2, 2)},
		"fit":         {f32(2, 3), f32(2, 4), f32(5, 3)},
		"batches":     {f32(2, 2, 2), f32(2, 2, 2), f32(3, 2, 2)},
		"last stride": {f32(2, 2).Transpose(0, 1), f32(2, 2), f32(2, 2)},
		"repeats":     {f32(2, 2).Broadcast(3, 2, 2), f32(3, 2, 2), f32(3, 2, 2)},
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.Contains(s, want) {
					t.Errorf("panic %q, want one about %q", s, want)
				}
			}()
			q.MatMul(x[0], x[1], x[2], false)
		}()
	}
}
