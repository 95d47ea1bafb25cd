package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// BenchmarkMatMul reports GFLOP/s; BenchmarkGemmPeak has the number to hold it
// against.
func BenchmarkMatMul(b *testing.B) {
	shapes := []gemmCase{
		{m: 64, n: 64, k: 64}, {m: 1024, n: 1024, k: 1024}, {m: 256, n: 2048, k: 512},
		{m: 256, n: 512, k: 2048}, {m: 4096, n: 256, k: 1024},
		{m: 256, n: 512, k: 2048, b: gemmLayout{transposed: true}},
		{m: 512, n: 2048, k: 256, a: gemmLayout{transposed: true}},
		{m: 1, n: 2048, k: 512}, {m: 256, n: 8, k: 512}, {batch: 16, m: 64, n: 64, k: 64},
	}
	for _, workers := range []int{1, 2} {
		q := gemmTestQueue(b, gemmTestLevels(b)[0], workers)
		for _, p := range shapes {
			b.Run(fmt.Sprintf("%s/%dw", p.name(), workers), func(b *testing.B) {
				o := newGemmOperands[float32](p, device.Float32, 1)
				defer o.free()
				q.MatMul(o.dst, o.a, o.b, false)
				for b.Loop() {
					q.MatMul(o.dst, o.a, o.b, false)
				}
				reportGFLOPs(b, 2*max(1, p.batch)*p.m*p.n*p.k)
			})
		}
	}
}

// BenchmarkMatMulCold has the products of a feed-forward layer, forward and backward, with
// operands that come from memory, as they do in a training step.
func BenchmarkMatMulCold(b *testing.B) {
	const sets = 12
	q := gemmTestQueue(b, gemmTestLevels(b)[0], 1)
	for _, p := range []gemmCase{
		{m: 512, n: 2048, k: 768, b: gemmLayout{transposed: true}},
		{m: 512, n: 768, k: 2048},
		{m: 2048, n: 768, k: 512, a: gemmLayout{transposed: true}},
		{m: 512, n: 768, k: 2048, b: gemmLayout{transposed: true}},
		{m: 512, n: 2048, k: 768},
		{m: 768, n: 2048, k: 512, a: gemmLayout{transposed: true}},
	} {
		b.Run(p.name(), func(b *testing.B) {
			var operands [sets]gemmOperands
			for i := range operands {
				operands[i] = newGemmOperands[float32](p, device.Float32, 1)
				defer operands[i].free()
			}
			for i := 0; b.Loop(); i++ {
				o := operands[i%sets]
				q.MatMul(o.dst, o.a, o.b, false)
			}
			reportGFLOPs(b, 2*p.m*p.n*p.k)
		})
	}
}

func BenchmarkMatMulFloat64(b *testing.B) {
	q := gemmTestQueue(b, gemmTestLevels(b)[0], 1)
	p := gemmCase{m: 256, n: 256, k: 256}
	o := newGemmOperands[float64](p, device.Float64, 1)
	defer o.free()
	for b.Loop() {
		q.MatMul(o.dst, o.a, o.b, false)
	}
	reportGFLOPs(b, 2*p.m*p.n*p.k)
}

// BenchmarkGemmTile has the sizes of attention: queries·keysᵀ and scores·values.
func BenchmarkGemmTile(b *testing.B) {
	l, _, _ := parseLevel(gemmTestLevels(b)[0])
	scratch, _ := allocate(gemmScratch)
	defer scratch.Free()
	for _, p := range []gemmCase{
		{m: 64, n: 64, k: 16, b: gemmLayout{transposed: true}},
		{m: 64, n: 64, k: 64, b: gemmLayout{transposed: true}}, {m: 64, n: 64, k: 64},
		{m: 64, n: 64, k: 64, a: gemmLayout{transposed: true}},
		{m: 128, n: 128, k: 192, b: gemmLayout{transposed: true}}, {m: 128, n: 192, k: 128},
	} {
		b.Run(p.name(), func(b *testing.B) {
			o := newGemmOperands[float32](p, device.Float32, 1)
			defer o.free()
			for b.Loop() {
				gemmTile[float32](l, p.m, p.n, p.k, o.a.Pointer(), o.a.Stride(0), o.a.Stride(1),
					o.b.Pointer(), o.b.Stride(0), o.b.Stride(1), o.dst.Pointer(), o.dst.Stride(0), false, scratch.base)
			}
			reportGFLOPs(b, 2*p.m*p.n*p.k)
		})
	}
}

// BenchmarkGemmPeak runs the micro-kernel on one step of operands again and
// again: nothing but its fused multiply-adds and first-level cache hits.
func BenchmarkGemmPeak(b *testing.B) {
	l, _, _ := parseLevel(gemmTestLevels(b)[0])
	rows, columns := gemmTileOf[float32](l)
	memory, _ := allocate(1 << 16)
	defer memory.Free()
	gemmRandomize[float32](rand.New(rand.NewPCG(1, 2)), device.NewTensor(memory, 0, device.Float32, 1, 1024))
	c := unsafe.Add(memory.base, 1<<15)
	const k = 1 << 14
	for b.Loop() {
		gemmPanel[float32](l, 1, k, memory.base, 0, 4, 0, unsafe.Add(memory.base, 1024), 0, 0, c, 4*columns, false)
	}
	reportGFLOPs(b, 2*rows*columns*k)
}

func (p gemmCase) name() string {
	letter := func(l gemmLayout) string {
		if l.transposed {
			return "T"
		}
		return "N"
	}
	return fmt.Sprintf("%dx%dx%dx%d%s%s", max(1, p.batch), p.m, p.n, p.k, letter(p.a), letter(p.b))
}

func reportGFLOPs(b *testing.B, flops int) {
	b.ReportMetric(float64(flops)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}
