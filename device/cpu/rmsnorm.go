package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) RMSNorm(dst, x, weight device.Tensor, eps float64) {
	if isFloat32(dst) {
		rmsNorm[float32](q, dst, x, weight, eps)
	} else {
		rmsNorm[float64](q, dst, x, weight, eps)
	}
}

func (q *queue) RMSNormBackward(dx, dweight, x, weight, dy device.Tensor, eps float64, ws device.Tensor) {
	if isFloat32(x) {
		rmsNormBackward[float32](q, dx, dweight, x, weight, dy, eps, ws)
	} else {
		rmsNormBackward[float64](q, dx, dweight, x, weight, dy, eps, ws)
	}
}

type rmsNormTask[T float] struct {
	loop
	dst, x unsafe.Pointer
	weight []T
	eps    float64
}

func rmsNorm[T float](q *queue, dst, x, weight device.Tensor, eps float64) {
	same(dst, x)
	t := &blocks[T](q).rmsNorm
	t.overRows(grain/2, dst, x)
	t.dst, t.x, t.weight, t.eps = dst.Pointer(), x.Pointer(), widthOf[T](weight, x), eps
	q.run(t.chunks(), t)
}

// widthOf returns the elements of a vector as wide as x.
func widthOf[T float](vector, x device.Tensor) []T {
	v := elements[T](vector)
	if len(v) != x.Last() {
		panic("cpu: rmsnorm weight and rows of unequal widths")
	}
	return v
}

func (t *rmsNormTask[T]) do(_, i int) {
	width := len(t.weight)
	if width == 0 {
		return
	}
	for c := t.chunk(i); c.next(); {
		for j := range c.n {
			dst := slice[T](t.dst, c.at[0]+j*t.step(0), width)
			x := slice[T](t.x, c.at[1]+j*t.step(1), width)
			r := T(1 / math.Sqrt(dotRow(x, x)/float64(width)+t.eps))
			normalizeRow(dst, x, t.weight, r)
		}
	}
}

func normalizeRow[T float](dst, x, weight []T, r T) {
	n := len(weight)
	dst, x = dst[:n], x[:n]
	i := 0
	for ; i <= n-4; i += 4 {
		d, x, w := (*[4]T)(dst[i:]), (*[4]T)(x[i:]), (*[4]T)(weight[i:])
		d[0] = x[0] * r * w[0]
		d[1] = x[1] * r * w[1]
		d[2] = x[2] * r * w[2]
		d[3] = x[3] * r * w[3]
	}
	for ; i < n; i++ {
		dst[i] = x[i] * r * weight[i]
	}
}

// rmsNormBackwardTask's iterations are the parts of dweight: with
// r = 1/sqrt(mean(x²) + eps),
//
//	dx = r·(w·dy) − x·r³/D·Σ w·dy·x;  dweight = Σ_rows dy·x·r
type rmsNormBackwardTask[T float] struct {
	loop
	dx, x, dy unsafe.Pointer // dx nil if nobody reads it
	weight    []T
	eps       float64
	parts     int
	partials  []T // [parts, width], none if nobody reads dweight
	dweight   []T
}

func rmsNormBackward[T float](q *queue, dx, dweight, x, weight, dy device.Tensor, eps float64, ws device.Tensor) {
	same(x, dy)
	t := &blocks[T](q).rmsNormBackward
	t.dx, t.partials, t.dweight = nil, nil, nil
	if !dx.IsZero() {
		same(x, dx)
		t.dx = dx.Pointer()
		t.overRows(1, x, dy, dx)
	} else {
		t.overRows(1, x, dy)
	}
	t.x, t.dy, t.weight, t.eps = x.Pointer(), dy.Pointer(), widthOf[T](weight, x), eps
	rows, width := t.count(), x.Last()
	t.parts = device.RMSNormPartials(rows)
	if !dweight.IsZero() {
		t.dweight = widthOf[T](dweight, x)
		if n := device.RMSNormWorkspace(x.DType(), rows, width); n > 0 {
			if ws.Bytes() < n {
				panic("cpu: workspace of RMSNormBackward is too small")
			}
			t.partials = slice[T](ws.Pointer(), 0, t.parts*width)
		}
	}
	q.run(t.parts, t)
	if t.dweight != nil {
		q.run((width+columnsPerChunk-1)/columnsPerChunk, (*rmsNormWeight[T])(t))
	}
}

func (t *rmsNormBackwardTask[T]) do(_, part int) {
	width, rows := len(t.weight), t.count()
	if width == 0 {
		return
	}
	var dweight []T
	if t.partials != nil {
		dweight = t.partials[part*width : (part+1)*width]
		clear(dweight)
	}
	for row := rows * part / t.parts; row < rows*(part+1)/t.parts; row++ {
		at := t.offsets(row)
		x, dy := slice[T](t.x, at[0], width), slice[T](t.dy, at[1], width)
		r := 1 / math.Sqrt(dotRow(x, x)/float64(width)+t.eps)
		dot := 0.0
		if t.dx != nil {
			dot = dot3Row(t.weight, dy, x)
		}
		if dweight != nil {
			addProductRow(dweight, dy, x, T(r))
		}
		if t.dx != nil {
			rmsNormBackwardRow(slice[T](t.dx, at[2], width), x, t.weight, dy, T(r), T(dot*r*r*r/float64(width)))
		}
	}
}

func rmsNormBackwardRow[T float](dx, x, weight, dy []T, r, s T) {
	n := len(weight)
	dx, x, dy = dx[:n], x[:n], dy[:n]
	for i, w := range weight {
		dx[i] = r*(w*dy[i]) - s*x[i]
	}
}

// addProductRow computes sum += a·b·r.
func addProductRow[T float](sum, a, b []T, r T) {
	n := len(sum)
	a, b = a[:n], b[:n]
	i := 0
	for ; i <= n-4; i += 4 {
		s, x, y := (*[4]T)(sum[i:]), (*[4]T)(a[i:]), (*[4]T)(b[i:])
		s[0] += x[0] * (y[0] * r)
		s[1] += x[1] * (y[1] * r)
		s[2] += x[2] * (y[2] * r)
		s[3] += x[3] * (y[3] * r)
	}
	for ; i < n; i++ {
		sum[i] += a[i] * (b[i] * r)
	}
}

// dot3Row is Σ a·b·c in two lanes of float64.
func dot3Row[T float](a, b, c []T) float64 {
	b, c = b[:len(a)], c[:len(a)]
	var s0, s1 float64
	i := 0
	for ; i <= len(a)-2; i += 2 {
		x, y, z := (*[2]T)(a[i:]), (*[2]T)(b[i:]), (*[2]T)(c[i:])
		s0 += float64(x[0]*y[0]) * float64(z[0])
		s1 += float64(x[1]*y[1]) * float64(z[1])
	}
	if i < len(a) {
		s0 += float64(a[i]*b[i]) * float64(c[i])
	}
	return s0 + s1
}

// rmsNormWeight adds the parts of dweight in order.
type rmsNormWeight[T float] rmsNormBackwardTask[T]

func (t *rmsNormWeight[T]) do(_, chunk int) {
	width := len(t.dweight)
	var sums [columnsPerChunk]float64
	lo, hi := chunk*columnsPerChunk, min((chunk+1)*columnsPerChunk, width)
	for part := range t.parts {
		for j, p := range t.partials[part*width+lo : part*width+hi] {
			sums[j] += float64(p)
		}
	}
	for j := range hi - lo {
		t.dweight[lo+j] = T(sums[j])
	}
}
