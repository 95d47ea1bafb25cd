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
	level  level
	dst, x unsafe.Pointer
	weight []T
	eps    float64
}

func rmsNorm[T float](q *queue, dst, x, weight device.Tensor, eps float64) {
	same(dst, x)
	t := &blocks[T](q).rmsNorm
	t.overRows(grain/2, dst, x)
	t.level = q.dev.level
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
			r := T(1 / math.Sqrt(dotRow(t.level, x, x)/float64(width)+t.eps))
			normalizeRow(t.level, dst, x, t.weight, r)
		}
	}
}

// normalizeRow computes dst = x·r·weight.
func normalizeRow[T float](l level, dst, x, weight []T, r T) {
	if vectorized[T](l) {
		normalizeVector(l, asFloat32(dst), asFloat32(x), asFloat32(weight), float32(r))
		return
	}
	x, weight = x[:len(dst)], weight[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * r * weight[i]
	}
}

// rmsNormBackwardTask's iterations are the parts of dweight: with
// r = 1/sqrt(mean(x²) + eps),
//
//	dx = r·(w·dy) − x·r³/D·Σ w·dy·x;  dweight = Σ_rows dy·x·r
type rmsNormBackwardTask[T float] struct {
	loop
	level     level
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
	t.level = q.dev.level
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
		r := 1 / math.Sqrt(dotRow(t.level, x, x)/float64(width)+t.eps)
		dot := 0.0
		if t.dx != nil {
			dot = dot3Row(t.level, t.weight, dy, x)
		}
		if dweight != nil {
			addProductRow(t.level, dweight, dy, x, T(r))
		}
		if t.dx != nil {
			rmsNormBackwardRow(t.level, slice[T](t.dx, at[2], width), x, t.weight, dy, T(r), T(dot*r*r*r/float64(width)))
		}
	}
}

// rmsNormBackwardRow computes dx = r·(weight·dy) − s·x.
func rmsNormBackwardRow[T float](l level, dx, x, weight, dy []T, r, s T) {
	if vectorized[T](l) {
		rmsNormBackwardVector(l, asFloat32(dx), asFloat32(x), asFloat32(weight), asFloat32(dy), float32(r), float32(s))
		return
	}
	n := len(weight)
	dx, x, dy = dx[:n], x[:n], dy[:n]
	for i, w := range weight {
		dx[i] = T(r*(w*dy[i])) - T(s*x[i])
	}
}

// addProductRow computes sum += a·b·r.
func addProductRow[T float](l level, sum, a, b []T, r T) {
	if vectorized[T](l) {
		addProductVector(l, asFloat32(sum), asFloat32(a), asFloat32(b), float32(r))
		return
	}
	a, b = a[:len(sum)], b[:len(sum)]
	for i := range sum {
		sum[i] += T(a[i] * (b[i] * r))
	}
}

// rmsNormWeight adds the parts of dweight in order.
type rmsNormWeight[T float] rmsNormBackwardTask[T]

func (t *rmsNormWeight[T]) do(_, chunk int) {
	width := len(t.dweight)
	var sums [columnsPerChunk]float64
	lo, hi := chunk*columnsPerChunk, min((chunk+1)*columnsPerChunk, width)
	for part := range t.parts {
		addColumnsRow(t.level, sums[:hi-lo], t.partials[part*width+lo:part*width+hi])
	}
	for j := range hi - lo {
		t.dweight[lo+j] = T(sums[j])
	}
}
