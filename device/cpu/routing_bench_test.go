package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lethe-go/lethe/device"
)

// benchOperand is a tensor of random numbers.
func benchOperand(b *testing.B, d device.DType, shape ...int) device.Tensor {
	n := d.Size()
	for _, e := range shape {
		n *= e
	}
	memory, err := allocate(int64(n))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(memory.Free)
	t := device.NewTensor(memory, 0, d, shape...)
	if d == device.Float32 {
		r := rand.New(rand.NewPCG(1, 2))
		for i := range elements[float32](t) {
			elements[float32](t)[i] = float32(2*r.Float64() - 1)
		}
	}
	return t
}

// unevenCounts deals rows out to experts of which the busiest has several times
// the mean.
func unevenCounts(counts []int32, rows int) {
	r := rand.New(rand.NewPCG(3, 4))
	clear(counts)
	for range rows {
		x := r.Float64()
		counts[int(x*x*float64(len(counts)))]++
	}
}

// BenchmarkGrouped holds the products of 64 uneven experts against the MatMul of
// as many rows with one matrix, which is read once, and against as many MatMuls.
func BenchmarkGrouped(b *testing.B) {
	const experts = 64
	for _, s := range []struct{ rows, n, k int }{{4096, 512, 1024}, {4096, 1024, 512}, {16384, 256, 512}, {1024, 512, 512}} {
		for _, workers := range []int{1, 2} {
			q := gemmTestQueue(b, gemmTestLevels(b)[0], workers)
			x, y := benchOperand(b, device.Float32, s.rows, s.k), benchOperand(b, device.Float32, s.rows, s.n)
			w, counts := benchOperand(b, device.Float32, experts, s.k, s.n), benchOperand(b, device.Int32, experts)
			unevenCounts(elements[int32](counts), s.rows)
			measure := func(name string, f func()) {
				b.Run(fmt.Sprintf("%dx%dx%d/%dw/%s", s.rows, s.n, s.k, workers, name), func(b *testing.B) {
					for f(); b.Loop(); {
						f()
					}
					reportGFLOPs(b, 2*s.rows*s.n*s.k)
				})
			}
			measure("plain", func() { q.MatMul(y, x, w.Index(0), false) })
			measure("one by one", func() {
				first := 0
				for e, n := range elements[int32](counts) {
					last := first + int(n)
					q.MatMul(y.Slice(0, first, last), x.Slice(0, first, last), w.Index(e), false)
					first = last
				}
			})
			measure("forward", func() { q.GroupedMatMul(y, x, w, counts) })
			measure("backward", func() { q.GroupedMatMul(x, y, w.Transpose(1, 2), counts) })
			measure("weight", func() { q.GroupedMatMulWeight(w, x, y, counts) })
		}
	}
}

// BenchmarkRouting reports the time of all that is not a product, for 4096 tokens
// of 1024 elements that go to 8 of 64 experts.
func BenchmarkRouting(b *testing.B) {
	const tokens, experts, k, width = 4096, 64, 8, 1024
	q := gemmTestQueue(b, gemmTestLevels(b)[0], 2)
	tensor := func(d device.DType, shape ...int) device.Tensor { return benchOperand(b, d, shape...) }
	x, rows := tensor(device.Float32, tokens, width), tensor(device.Float32, tokens*k, width)
	scores, bias := tensor(device.Float32, tokens, experts), tensor(device.Float32, experts)
	weight, dweight := tensor(device.Float32, tokens, k), tensor(device.Float32, tokens, k)
	ids, counts := tensor(device.Int32, tokens, k), tensor(device.Int32, experts)
	order, position := tensor(device.Int32, tokens*k), tensor(device.Int32, tokens*k)
	drows := tensor(device.Float32, tokens*k, width)
	measure := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			for f(); b.Loop(); {
				f()
			}
		})
	}
	measure("TopK", func() { q.TopK(ids, scores, bias, 1, 1) })
	measure("TopK/groups", func() { q.TopK(ids, scores, bias, 8, 4) })
	measure("GatherColumns", func() { q.GatherColumns(weight, scores, ids) })
	measure("SortByExpert", func() { q.SortByExpert(order, position, counts, ids) })
	measure("GatherRows", func() { q.GatherRows(rows, x, order, k) })
	measure("CombineRows", func() { q.CombineRows(x, rows, position, weight) })
	measure("CombineRowsBackward", func() { q.CombineRowsBackward(drows, dweight, rows, position, order, weight, x) })
	if err := q.Sync(); err != nil {
		b.Fatal(err)
	}
}
