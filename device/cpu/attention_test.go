package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/lethe-go/lethe/device"
	"pgregory.net/rapid"
)

// attentionRun is a case laid out in device memory: each tensor is a strided
// view with NaN between and around its rows.
type attentionRun struct {
	c                   *attentionCase
	dtype               device.DType
	q, k, v, out, dout  device.Tensor
	dq, dk, dv, lse, ws device.Tensor
	guards              []guarded
	mask                device.Mask
	t                   testing.TB
	layout              layout
}

// guarded is a buffer and which of its elements a view covers.
type guarded struct {
	whole device.Tensor
	inner []bool
}

type layout struct {
	padWidth, padHeads int  // elements behind a row, heads behind the heads
	headsBeforeRow     bool // memory order [batch, heads, rows, width]
	fused              bool // q, k and v are slices of one [batch, T, H + 2·Hkv, D]
}

func newAttentionRun(t testing.TB, d device.DType, c *attentionCase, l layout) *attentionRun {
	r := &attentionRun{c: c, dtype: d, t: t, layout: l}
	if l.fused && c.q.rows == c.k.rows && c.q.width == c.v.width {
		g := c.q
		all := r.place(g.batch, g.rows, g.heads+2*c.k.heads, g.width)
		r.q = all.Slice(2, 0, g.heads)
		r.k = all.Slice(2, g.heads, g.heads+c.k.heads)
		r.v = all.Slice(2, g.heads+c.k.heads, g.heads+2*c.k.heads)
		grads := r.place(g.batch, g.rows, g.heads+2*c.k.heads, g.width)
		r.dq = grads.Slice(2, 0, g.heads)
		r.dk = grads.Slice(2, g.heads, g.heads+c.k.heads)
		r.dv = grads.Slice(2, g.heads+c.k.heads, g.heads+2*c.k.heads)
	} else {
		like := func(g grid) device.Tensor { return r.place(g.batch, g.rows, g.heads, g.width) }
		r.q, r.k, r.v, r.dq, r.dk, r.dv = like(c.q), like(c.k), like(c.v), like(c.q), like(c.k), like(c.v)
	}
	r.out = r.place(c.q.batch, c.q.rows, c.q.heads, c.v.width)
	r.dout = r.place(c.q.batch, c.q.rows, c.q.heads, c.v.width)
	r.lse = r.guard(c.q.batch*c.q.heads*c.q.rows).Reshape(c.q.batch, c.q.heads, c.q.rows)
	n := int(device.AttentionWorkspace(d, c.q.batch, c.q.heads, c.q.rows)) / d.Size()
	r.ws = r.guard(n)
	r.mask = c.mask
	r.mask.Start, r.mask.End = r.borders(c.start), r.borders(c.end)
	for _, p := range []struct {
		t device.Tensor
		g grid
	}{{r.q, c.q}, {r.k, c.k}, {r.v, c.v}, {r.dout, c.dout}} {
		r.each(p.t, func(i int, set func(float64), _ func() float64) { set(p.g.data[i]) })
	}
	return r
}

func (r *attentionRun) alloc(bytes int) device.Buffer {
	b, err := allocate(int64(bytes))
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// guard returns n contiguous elements in the middle of NaN.
func (r *attentionRun) guard(n int) device.Tensor {
	const zone = 16
	whole := device.NewTensor(r.alloc((n+2*zone)*r.dtype.Size()), 0, r.dtype, n+2*zone)
	r.fillNaN(whole)
	inner := whole.Slice(0, zone, zone+n)
	g := guarded{whole, make([]bool, whole.Len())}
	for i := range n {
		g.inner[zone+i] = true
	}
	r.guards = append(r.guards, g)
	return inner
}

// place returns a [batch, rows, heads, width] view of padded memory full of NaN.
func (r *attentionRun) place(batch, rows, heads, width int) device.Tensor {
	h, w := heads+r.layout.padHeads, width+r.layout.padWidth
	n := batch * rows * h * w
	whole := r.guard(n)
	var t device.Tensor
	if r.layout.headsBeforeRow {
		t = whole.Reshape(batch, h, rows, w).Transpose(1, 2)
	} else {
		t = whole.Reshape(batch, rows, h, w)
	}
	t = t.Slice(2, 0, heads).Slice(3, 0, width)
	g := &r.guards[len(r.guards)-1]
	clear(g.inner)
	first := int(whole.Offset()) / r.dtype.Size()
	for b := range batch {
		for i := range rows {
			for j := range heads {
				for k := range width {
					g.inner[first+b*t.Stride(0)+i*t.Stride(1)+j*t.Stride(2)+k] = true
				}
			}
		}
	}
	return t
}

func (r *attentionRun) fillNaN(t device.Tensor) {
	if r.dtype == device.Float32 {
		for x, i := elements[float32](t), 0; i < len(x); i++ {
			x[i] = float32(math.NaN())
		}
		return
	}
	for x, i := elements[float64](t), 0; i < len(x); i++ {
		x[i] = math.NaN()
	}
}

func (r *attentionRun) borders(x []int32) device.Tensor {
	if x == nil {
		return device.Tensor{}
	}
	t := device.NewTensor(r.alloc(4*len(x)), 0, device.Int32, r.c.q.batch, r.c.q.rows)
	copy(elements[int32](t), x)
	return t
}

// each visits the elements of a view in row-major order.
func (r *attentionRun) each(t device.Tensor, f func(i int, set func(float64), get func() float64)) {
	i, size := 0, r.dtype.Size()
	if t.Len() == 0 {
		return
	}
	for b := range t.Dim(0) {
		for x := range t.Dim(1) {
			for y := range t.Dim(2) {
				for z := range t.Dim(3) {
					p := unsafe.Add(t.Pointer(), size*(b*t.Stride(0)+x*t.Stride(1)+y*t.Stride(2)+z*t.Stride(3)))
					if r.dtype == device.Float32 {
						f(i, func(v float64) { *(*float32)(p) = float32(v) }, func() float64 { return float64(*(*float32)(p)) })
					} else {
						f(i, func(v float64) { *(*float64)(p) = v }, func() float64 { return *(*float64)(p) })
					}
					i++
				}
			}
		}
	}
}

func (r *attentionRun) values(t device.Tensor) []float64 {
	v := make([]float64, 0, t.Len())
	for t.Rank() < 4 {
		t = t.Reshape(append([]int{1}, t.Shape()...)...)
	}
	r.each(t, func(_ int, _ func(float64), get func() float64) { v = append(v, get()) })
	return v
}

func (r *attentionRun) run(q device.Queue) {
	q.Attention(r.out, r.lse, r.q, r.k, r.v, r.mask, r.c.scale)
	q.AttentionBackward(r.dq, r.dk, r.dv, r.q, r.k, r.v, r.out, r.lse, r.dout, r.mask, r.c.scale, r.ws)
}

// result reads everything back.
func (r *attentionRun) result() map[string][]float64 {
	return map[string][]float64{"out": r.values(r.out), "lse": r.values(r.lse),
		"dq": r.values(r.dq), "dk": r.values(r.dk), "dv": r.values(r.dv)}
}

func (n naiveResult) result() map[string][]float64 {
	return map[string][]float64{"out": n.out.data, "lse": n.lse, "dq": n.dq.data, "dk": n.dk.data, "dv": n.dv.data}
}

// contents are the elements of a contiguous tensor.
func (r *attentionRun) contents(t device.Tensor) []float64 {
	if r.dtype == device.Float64 {
		return elements[float64](t)
	}
	v := make([]float64, t.Len())
	for i, x := range elements[float32](t) {
		v[i] = float64(x)
	}
	return v
}

// checkGuards reports elements outside the views that are no longer NaN.
func (r *attentionRun) checkGuards() error {
	for n, g := range r.guards {
		for i, v := range r.contents(g.whole) {
			if !g.inner[i] && !math.IsNaN(v) {
				return fmt.Errorf("buffer %d: element %d outside the view was overwritten by %v", n, i, v)
			}
		}
	}
	return nil
}

// compare wants every tensor within bound, relative to its largest element or
// to 1, and infinities alike.
func compare(got, want map[string][]float64, bound float64) error {
	for name, w := range want {
		size := 1.0
		for _, v := range w {
			if !math.IsInf(v, 0) {
				size = max(size, math.Abs(v))
			}
		}
		for i, v := range w {
			g := got[name][i]
			if math.IsInf(v, 0) && g == v {
				continue
			}
			if !(math.Abs(g-v) <= bound*size) {
				return fmt.Errorf("%s[%d] = %v, want %v within %v", name, i, g, v, bound*size)
			}
		}
	}
	return nil
}

func testDevice(t testing.TB, workers int) *Device {
	d, err := New(Options{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func testQueue(t testing.TB, workers int) *queue {
	q := newQueue(testDevice(t, workers))
	t.Cleanup(func() { q.Close() })
	return q
}

func randomGrid(rng *rand.Rand, size float64, batch, rows, heads, width int) grid {
	g := newGrid(batch, rows, heads, width)
	for i := range g.data {
		// float32 exactly, so that both dtypes solve the same problem.
		g.data[i] = float64(float32(size * rng.NormFloat64()))
	}
	return g
}

// drawCase draws shapes around the tile borders and any combination of masks.
func drawCase(t *rapid.T, most int) *attentionCase {
	n := func(lo, hi int, name string) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	batch, keyHeads, group := n(1, 2, "batch"), n(1, 2, "key heads"), n(1, 3, "group")
	queries, keys := n(1, most, "queries"), n(0, most, "keys")
	if rapid.Bool().Draw(t, "square") {
		keys = queries
	}
	width, valueWidth := n(1, 20, "Dqk"), n(1, 20, "Dv")
	if rapid.Bool().Draw(t, "equal widths") {
		valueWidth = width
	}
	c := &attentionCase{
		q: randomGrid(rng, 1, batch, queries, keyHeads*group, width), k: randomGrid(rng, 1, batch, keys, keyHeads, width),
		v: randomGrid(rng, 1, batch, keys, keyHeads, valueWidth), dout: randomGrid(rng, 1, batch, queries, keyHeads*group, valueWidth),
		scale: 1 / math.Sqrt(float64(width)),
	}
	c.mask.Causal = rapid.Bool().Draw(t, "causal")
	if rapid.Bool().Draw(t, "windowed") {
		c.mask.Window = n(1, most, "window")
	}
	if rapid.Bool().Draw(t, "blocked") {
		c.mask.Block = n(1, most, "block")
	}
	if rapid.Bool().Draw(t, "shifted") {
		c.mask.Offset = n(-most, most, "offset")
	}
	border := func(name string) (b []int32) {
		if rapid.Bool().Draw(t, name) {
			for range batch * queries {
				b = append(b, int32(rng.IntN(keys+3)-1))
			}
		}
		return b
	}
	c.start, c.end = border("start"), border("end")
	if rapid.Bool().Draw(t, "documents") {
		c.start, c.end = documents(rng, batch, queries)
	}
	return c
}

// documents packs random documents into every row of the batch.
func documents(rng *rand.Rand, batch, queries int) (start, end []int32) {
	for range batch {
		for first := 0; first < queries; {
			last := min(queries, first+1+rng.IntN(queries))
			for range last - first {
				start, end = append(start, int32(first)), append(end, int32(last))
			}
			first = last
		}
	}
	return start, end
}

func drawLayout(t *rapid.T) layout {
	return layout{
		padWidth: rapid.IntRange(0, 3).Draw(t, "pad width"), padHeads: rapid.IntRange(0, 2).Draw(t, "pad heads"),
		headsBeforeRow: rapid.Bool().Draw(t, "heads before rows"), fused: rapid.Bool().Draw(t, "fused"),
	}
}

// Forward and backward agree with the naive attention, in both dtypes, over any
// shape, mask and strides, and write nothing but their outputs. In float32 the
// bound is 2e-5 of a tensor's largest element.
func TestAttentionAgainstNaive(t *testing.T) {
	q := testQueue(t, 2)
	rapid.Check(t, func(rt *rapid.T) {
		c, l := drawCase(rt, 250), drawLayout(rt)
		want := c.naive().result()
		for d, bound := range map[device.DType]float64{device.Float64: 1e-12, device.Float32: 2e-5} {
			r := newAttentionRun(t, d, c, l)
			r.run(q)
			if err := compare(r.result(), want, bound); err != nil {
				rt.Fatalf("%v: %v", d, err)
			}
			if err := r.checkGuards(); err != nil {
				rt.Fatalf("%v: %v", d, err)
			}
		}
	})
}

// Each kind of mask over several tiles, with the head widths of real models.
func TestAttentionMasks(t *testing.T) {
	q := testQueue(t, 2)
	rng := rand.New(rand.NewPCG(1, 2))
	start, end := documents(rng, 1, 300)
	for name, c := range map[string]attentionCase{
		"none": {}, "causal": {mask: device.Mask{Causal: true}}, "window": {mask: device.Mask{Causal: true, Window: 70}},
		"block": {mask: device.Mask{Block: 100}}, "documents": {start: start, end: end},
		"causal documents": {mask: device.Mask{Causal: true}, start: start, end: end},
		"all hidden":       {mask: device.Mask{Causal: true, Offset: -1000}},
		"behind a cache":   {mask: device.Mask{Causal: true, Offset: 50}},
	} {
		c.q, c.k = randomGrid(rng, 1, 1, 300, 2, 192), randomGrid(rng, 1, 1, 350, 1, 192)
		c.v, c.dout, c.scale = randomGrid(rng, 1, 1, 350, 1, 128), randomGrid(rng, 1, 1, 300, 2, 128), 1/math.Sqrt(192)
		r := newAttentionRun(t, device.Float32, &c, layout{})
		r.run(q)
		if err := compare(r.result(), c.naive().result(), 2e-5); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Shapes that take ways of their own: decoding steps, whose keys and values are read
// where they lie; groups of more heads than a task has lanes; queries wider than one
// pass of the micro-kernel, or of no width; scales that are not positive.
func TestAttentionShapes(t *testing.T) {
	q := testQueue(t, 2)
	rng := rand.New(rand.NewPCG(3, 5))
	for name, s := range map[string]struct {
		queries, keys, heads, keyHeads, width, valueWidth int
		scale                                             float64
	}{
		"decode":                 {1, 204, 8, 2, 32, 64, 0.2},
		"decode, part of a tile": {1, 203, 8, 2, 32, 64, 0.2},
		"decode, odd widths":     {2, 192, 4, 2, 33, 31, 0.2},
		"decode, one key head":   {1, 100, 16, 1, 576, 512, 0.05},
		"many heads":             {3, 110, 200, 1, 8, 8, 0.3},
		"heads of no multiple":   {50, 110, 5, 1, 16, 16, 0.3},
		"wide":                   {110, 110, 1, 1, 300, 270, 0.05},
		"no width":               {20, 30, 2, 1, 0, 16, 1},
		"scale 0":                {110, 110, 2, 2, 16, 16, 0},
		"scale below 0":          {110, 110, 2, 2, 16, 16, -0.3},
	} {
		c := &attentionCase{
			q: randomGrid(rng, 1, 2, s.queries, s.heads, s.width), k: randomGrid(rng, 1, 2, s.keys, s.keyHeads, s.width),
			v: randomGrid(rng, 1, 2, s.keys, s.keyHeads, s.valueWidth), dout: randomGrid(rng, 1, 2, s.queries, s.heads, s.valueWidth),
			scale: s.scale, mask: device.Mask{Causal: true, Offset: s.keys - s.queries},
		}
		for d, bound := range map[device.DType]float64{device.Float64: 1e-12, device.Float32: 2e-5} {
			r := newAttentionRun(t, d, c, layout{})
			r.run(q)
			if err := compare(r.result(), c.naive().result(), bound); err != nil {
				t.Errorf("%s: %v: %v", name, d, err)
			}
			if err := r.checkGuards(); err != nil {
				t.Errorf("%s: %v: %v", name, d, err)
			}
		}
	}
}

// A query gives the same bits alone, as a decoding step computes it, and among others.
func TestAttentionOfOneQuery(t *testing.T) {
	q := testQueue(t, 1)
	rng := rand.New(rand.NewPCG(8, 5))
	const keys, heads, width = 300, 4, 32
	all := &attentionCase{q: randomGrid(rng, 3, 1, keys, heads, width), k: randomGrid(rng, 1, 1, keys, 2, width),
		v: randomGrid(rng, 1, 1, keys, 2, width), dout: newGrid(1, keys, heads, width), scale: 0.3, mask: device.Mask{Causal: true}}
	r := newAttentionRun(t, device.Float32, all, layout{})
	r.run(q)
	want := r.values(r.out)
	for i := 0; i < keys; i += 7 {
		one := *all
		row := i * heads * width
		one.q = grid{1, 1, heads, width, all.q.data[row : row+heads*width]}
		one.dout, one.mask.Offset = newGrid(1, 1, heads, width), i
		r := newAttentionRun(t, device.Float32, &one, layout{})
		q.Attention(r.out, r.lse, r.q, r.k, r.v, r.mask, one.scale)
		for j, v := range r.values(r.out) {
			if v != want[row+j] {
				t.Fatalf("query %d: element %d = %v alone, %v among others", i, j, v, want[row+j])
			}
		}
	}
}

// Central differences of Σ dout·out agree with the gradient.
func TestAttentionGradient(t *testing.T) {
	q := testQueue(t, 1)
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCase(rt, 120)
		r := newAttentionRun(t, device.Float64, c, layout{})
		r.run(q)
		loss := func() float64 {
			q.Attention(r.out, r.lse, r.q, r.k, r.v, r.mask, c.scale)
			return dot(r.values(r.out), c.dout.data)
		}
		rng := rand.New(rand.NewPCG(7, 7))
		for _, p := range []struct {
			name    string
			x, grad device.Tensor
		}{{"dq", r.q, r.dq}, {"dk", r.k, r.dk}, {"dv", r.v, r.dv}} {
			if p.x.Len() == 0 {
				continue
			}
			at, grad := rng.IntN(p.x.Len()), r.values(p.grad)
			const h = 1e-5
			x := elements[float64](p.x)
			old := x[at]
			x[at] = old + h
			above := loss()
			x[at] = old - h
			below := loss()
			x[at] = old
			if d := (above - below) / (2 * h); !(math.Abs(d-grad[at]) <= 1e-6*max(1, math.Abs(d))) {
				rt.Fatalf("%s[%d] = %v, differences give %v", p.name, at, grad[at], d)
			}
		}
	})
}

// Any number of workers gives the same bits.
func TestAttentionBitIdentity(t *testing.T) {
	var queues []*queue
	for _, n := range []int{1, 2, 3, 5} {
		queues = append(queues, testQueue(t, n))
	}
	rapid.Check(t, func(rt *rapid.T) {
		c, l := drawCase(rt, 500), drawLayout(rt)
		r := newAttentionRun(t, device.Float32, c, l)
		var want map[string][]float64
		for _, q := range queues {
			r.run(q)
			got := r.result()
			if want == nil {
				want = got
			}
			if err := compare(got, want, 0); err != nil {
				rt.Fatalf("%d workers: %v", q.dev.Workers(), err)
			}
		}
	})
}

// Scores of ±1e4 and more neither overflow nor give NaN.
func TestAttentionLargeScores(t *testing.T) {
	q := testQueue(t, 2)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, size := range []float64{1e2, 1e4, 1e8} {
		c := &attentionCase{
			q: randomGrid(rng, size, 1, 100, 2, 16), k: randomGrid(rng, 1, 1, 100, 2, 16),
			v: randomGrid(rng, 1, 1, 100, 2, 16), dout: randomGrid(rng, 1, 1, 100, 2, 16), scale: 1,
		}
		c.mask.Causal = true
		r := newAttentionRun(t, device.Float32, c, layout{})
		r.run(q)
		got := r.result()
		for name, x := range got {
			for i, v := range x {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("size %g: %s[%d] = %v", size, name, i, v)
				}
			}
		}
		r = newAttentionRun(t, device.Float64, c, layout{})
		r.run(q)
		// lse has the size of scores, which float64 loses digits of.
		if err := compare(r.result(), c.naive().result(), 1e-13*size); err != nil {
			t.Errorf("size %g: %v", size, err)
		}
	}
}

func TestAttentionAllocatesNothing(t *testing.T) {
	for _, d := range []device.DType{device.Float32, device.Float64} {
		q := testQueue(t, 2)
		c := benchmarkCase(1, 2, 100, 16)
		c.start, c.end = documents(rand.New(rand.NewPCG(1, 1)), 1, 100)
		r := newAttentionRun(t, d, c, layout{})
		if n := testing.AllocsPerRun(10, func() { r.run(q) }); n != 0 {
			t.Errorf("%v: %v allocations", d, n)
		}
	}
}

func benchmarkCase(batch, heads, length, width int) *attentionCase {
	rng := rand.New(rand.NewPCG(1, 1))
	x := func() grid { return randomGrid(rng, 1, batch, length, heads, width) }
	return &attentionCase{q: x(), k: x(), v: x(), dout: x(), mask: device.Mask{Causal: true}, scale: 1 / math.Sqrt(float64(width))}
}
