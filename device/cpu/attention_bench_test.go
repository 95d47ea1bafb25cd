package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lethe-go/lethe/device"
)

// BenchmarkAttention counts what a causal mask leaves: two products forward, five
// backward. It reports the median GFLOP/s, the best, and the median ratio to the rate
// of a product of 768×768×768 timed between any two runs on the same workers.
func BenchmarkAttention(b *testing.B) {
	for _, s := range []struct{ batch, length, heads, keyHeads, width, valueWidth int }{
		{2, 1024, 16, 16, 128, 128}, {4, 256, 16, 16, 16, 16}, {8, 128, 4, 2, 32, 32}, {8, 128, 4, 4, 48, 32},
		{1, 1024, 16, 16, 192, 128}, {4, 256, 16, 16, 192, 128},
	} {
		c := &attentionCase{mask: device.Mask{Causal: true}}
		c.q, c.k = newGrid(s.batch, s.length, s.heads, s.width), newGrid(s.batch, s.length, s.keyHeads, s.width)
		c.v, c.dout = newGrid(s.batch, s.length, s.keyHeads, s.valueWidth), newGrid(s.batch, s.length, s.heads, s.valueWidth)
		c.scale = 1 / math.Sqrt(float64(s.width))
		for i, g := range []grid{c.q, c.k, c.v, c.dout} {
			copy(g.data, randomGrid(rand.New(rand.NewPCG(1, uint64(i))), 1, g.batch, g.rows, g.heads, g.width).data)
		}
		flops := float64(s.batch*s.heads) * float64(s.length) * float64(s.length+1)
		for workers := 1; workers <= 2; workers++ {
			r, q := newAttentionRun(b, device.Float32, c, layout{}), testQueue(b, workers)
			r.run(q)
			name := fmt.Sprintf("%dx%dx%d,%dx%d,%d/%dw", s.batch, s.length, s.heads, s.keyHeads, s.width, s.valueWidth, workers)
			b.Run("forward/"+name, func(b *testing.B) {
				againstMatMul(b, q, flops*float64(s.width+s.valueWidth), func() {
					q.Attention(r.out, r.lse, r.q, r.k, r.v, r.mask, c.scale)
				})
			})
			b.Run("backward/"+name, func(b *testing.B) {
				againstMatMul(b, q, flops*float64(3*s.width+2*s.valueWidth), func() {
					q.AttentionBackward(r.dq, r.dk, r.dv, r.q, r.k, r.v, r.out, r.lse, r.dout, r.mask, c.scale, r.ws)
				})
			})
		}
	}
}

// A decoding step: one query of each of 32 heads in 8 groups against a cache.
func BenchmarkAttentionDecode(b *testing.B) {
	const keys, width = 4096, 128
	rng := rand.New(rand.NewPCG(1, 1))
	c := &attentionCase{q: randomGrid(rng, 1, 1, 1, 32, width), k: randomGrid(rng, 1, 1, keys, 8, width),
		v: randomGrid(rng, 1, 1, keys, 8, width), dout: newGrid(1, 1, 32, width), scale: 0.1}
	c.mask = device.Mask{Causal: true, Offset: keys - 1}
	r, q := newAttentionRun(b, device.Float32, c, layout{}), testQueue(b, 1)
	b.SetBytes(2 * 4 * 8 * keys * width)
	for b.Loop() {
		q.Attention(r.out, r.lse, r.q, r.k, r.v, r.mask, c.scale)
	}
}

// againstMatMul reports GFLOP/s of run and their ratio to those of a product.
func againstMatMul(b *testing.B, q *queue, flops float64, run func()) {
	const n = 768
	product := newGemmOperands[float32](gemmCase{m: n, n: n, k: n}, device.Float32, 1)
	defer product.free()
	var rates, ratios []float64
	for b.Loop() {
		start := time.Now()
		q.MatMul(product.dst, product.a, product.b, false)
		between := time.Now()
		run()
		rate := flops / float64(time.Since(between).Nanoseconds())
		rates = append(rates, rate)
		ratios = append(ratios, rate/(2*n*n*n/float64(between.Sub(start).Nanoseconds())))
	}
	slices.Sort(rates)
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rates[len(rates)/2], "GFLOP/s")
	b.ReportMetric(rates[len(rates)-1], "best-GFLOP/s")
	b.ReportMetric(ratios[len(ratios)/2], "of-sgemm")
}
