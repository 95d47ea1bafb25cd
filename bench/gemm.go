package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/lethe-go/lethe/bench/internal/quantile"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/internal/openblas"
)

// openDevice returns a CPU whose matrix products are our own, whatever the build.
func openDevice(threads int) (*cpu.Device, error) {
	d, err := cpu.New(cpu.Options{Workers: threads})
	if err != nil {
		return nil, err
	}
	level, _, _ := strings.Cut(d.Level(), "+")
	d.Close()
	return cpu.New(cpu.Options{Workers: threads, Level: level})
}

// product is a matrix product, or that of so many groups of rows, to measure.
type product struct {
	m, n, k int
	groups  int
	transA  bool
	transB  bool
}

func (p product) name() string {
	shape := fmt.Sprintf("%dx%dx%d", p.m, p.n, p.k)
	switch {
	case p.groups > 0:
		return fmt.Sprintf("grouped_sgemm %d×%s", p.groups, shape)
	case p.transA:
		return "sgemm_tn " + shape
	case p.transB:
		return "sgemm_nt " + shape
	}
	return "sgemm " + shape
}

// products are named m×n×k. Of the groups, uneven experts, m is the rows of all.
var products = []product{
	{m: 1024, n: 1024, k: 1024}, {m: 256, n: 2048, k: 512}, {m: 256, n: 512, k: 2048}, {m: 4096, n: 256, k: 1024},
	{m: 64, n: 64, k: 64}, {m: 256, n: 512, k: 2048, transB: true}, {m: 512, n: 2048, k: 256, transA: true},
	{m: 1, n: 2048, k: 512}, {m: 1, n: 2048, k: 512, transB: true}, {m: 8, n: 2048, k: 512, transB: true},
	{m: 4096, n: 512, k: 1024, groups: 64}, {m: 512, n: 512, k: 1024, groups: 64},
}

func benchGemm(ctx context.Context, o options, t *table) error {
	for _, threads := range o.threads {
		d, err := openDevice(threads)
		if err != nil {
			return err
		}
		for _, p := range products {
			if !o.wants(p.name()) {
				continue
			}
			if err := p.bench(ctx, d, o, t); err != nil {
				return err
			}
		}
		d.Close()
	}
	return nil
}

func (p product) bench(ctx context.Context, d *cpu.Device, o options, t *table) error {
	x, err := p.operands(d)
	if err != nil {
		return err
	}
	defer x.free()
	flops := 2 * float64(p.m) * float64(p.n) * float64(p.k)
	var rates, ofPeak, ofOpenBLAS []float64
	for range o.repeats {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		peak := d.PeakFLOPs()
		ours := fastest(x.ours)
		rates = append(rates, flops/ours)
		ofPeak = append(ofPeak, flops/ours/peak)
		if openblas.Linked {
			ofOpenBLAS = append(ofOpenBLAS, x.openBLAS(d.Workers())/ours)
		}
	}
	rate := fmt.Sprintf("%.1f GFLOP/s", quantile.Median(rates)/1e9)
	if err := t.add(newRow(p.name(), "fma_peak", d.Workers(), ofPeak, rate)); err != nil || !openblas.Linked {
		return err
	}
	return t.add(newRow(p.name(), "openblas", d.Workers(), ofOpenBLAS, rate))
}

// operands of a product, in memory of the device.
type operands struct {
	product
	queue   device.Queue
	c, a, b device.Tensor
	counts  device.Tensor
	rows    []int // of each group
}

func (p product) operands(d device.Device) (x operands, err error) {
	x = operands{product: p, queue: d.NewQueue()}
	groups := max(1, p.groups)
	for _, v := range []struct {
		t *device.Tensor
		n int
	}{{&x.c, p.m * p.n}, {&x.a, p.m * p.k}, {&x.b, groups * p.k * p.n}} {
		memory, err := d.Alloc(device.OnDevice, int64(4*v.n))
		if err != nil {
			return x, err
		}
		*v.t = device.NewTensor(memory, 0, device.Float32, v.n)
		x.queue.Random(*v.t, device.Distribution{Kind: device.Normal, Std: 1}, device.WholeDraw(1, v.n))
	}
	matrix := func(t device.Tensor, rows, columns int, transposed bool) device.Tensor {
		if transposed {
			return t.Reshape(columns, rows).Transpose(0, 1)
		}
		return t.Reshape(rows, columns)
	}
	x.c, x.a = matrix(x.c, p.m, p.n, false), matrix(x.a, p.m, p.k, p.transA)
	if p.groups == 0 {
		x.b = matrix(x.b, p.k, p.n, p.transB)
		return x, x.queue.Sync()
	}
	// The weights of experts are [out, in], as in a linear layer.
	x.b = x.b.Reshape(p.groups, p.n, p.k).Transpose(1, 2)
	memory, err := d.Alloc(device.OnHost, int64(4*p.groups))
	if err != nil {
		return x, err
	}
	x.counts = device.NewTensor(memory, 0, device.Int32, p.groups)
	x.rows = unevenRows(p.m, p.groups)
	for e, n := range x.rows {
		device.Elements[int32](x.counts)[e] = int32(n)
	}
	return x, x.queue.Sync()
}

// unevenRows deals rows out to experts of which the busiest has several times the mean.
func unevenRows(rows, experts int) []int {
	r := rand.New(rand.NewPCG(3, 4))
	counts := make([]int, experts)
	for range rows {
		x := r.Float64()
		counts[int(x*x*float64(experts))]++
	}
	return counts
}

func (x operands) free() {
	for _, t := range []device.Tensor{x.c, x.a, x.b, x.counts} {
		if !t.IsZero() {
			t.Buffer().Free()
		}
	}
	x.queue.Close()
}

func (x operands) ours() {
	if x.groups > 0 {
		x.queue.GroupedMatMul(x.c, x.a, x.b, x.counts)
		return
	}
	x.queue.MatMul(x.c, x.a, x.b, false)
}

// openBLAS returns the time of one call, or of one for each group.
func (x operands) openBLAS(threads int) float64 {
	openblas.SetThreads(threads)
	defer openblas.SetThreads(1)
	if x.groups == 0 {
		return fastest(func() { openblas.Sgemm(x.m, x.n, x.k, blasMatrix(x.a), blasMatrix(x.b), blasMatrix(x.c), false) })
	}
	return fastest(func() {
		first := 0
		for e, n := range x.rows {
			if n > 0 {
				openblas.Sgemm(n, x.n, x.k, blasMatrix(x.a.Slice(0, first, first+n)), blasMatrix(x.b.Index(e)),
					blasMatrix(x.c.Slice(0, first, first+n)), false)
			}
			first += n
		}
	})
}

func blasMatrix(t device.Tensor) openblas.Matrix {
	m := openblas.Matrix{Data: t.Pointer(), Stride: t.Stride(0)}
	if t.Stride(1) != 1 {
		m.Stride, m.Transposed = t.Stride(1), true
	}
	return m
}
