package cpu

import (
	"math"

	"github.com/lethe-go/lethe/device"
)

// grid is a [batch, rows, heads, width] array of float64: what the naive
// attention computes with.
type grid struct {
	batch, rows, heads, width int
	data                      []float64
}

func newGrid(batch, rows, heads, width int) grid {
	return grid{batch, rows, heads, width, make([]float64, batch*rows*heads*width)}
}

func (g grid) row(b, r, h int) []float64 {
	i := ((b*g.rows+r)*g.heads + h) * g.width
	return g.data[i : i+g.width]
}

// attentionCase is one problem in float64.
type attentionCase struct {
	q, k, v, dout grid
	mask          device.Mask
	start, end    []int32 // [batch, T], nil if there are none
	scale         float64
}

// sees is the mask as the documentation of device.Mask words it.
func (c *attentionCase) sees(b, t, s int) bool {
	p := t + c.mask.Offset
	floor := func(x int) int { return int(math.Floor(float64(x) / float64(c.mask.Block))) }
	switch {
	case c.mask.Causal && s > p,
		c.mask.Window > 0 && p-s > c.mask.Window-1,
		c.mask.Block > 0 && floor(s) != floor(p),
		c.start != nil && s < int(c.start[b*c.q.rows+t]),
		c.end != nil && s >= int(c.end[b*c.q.rows+t]):
		return false
	}
	return true
}

// naiveResult is what attention and its gradient should be.
type naiveResult struct {
	out, dq, dk, dv grid
	lse             []float64 // [batch, heads, T]
}

// naive holds all scores of one query at a time and never subtracts less than
// their maximum.
func (c *attentionCase) naive() naiveResult {
	r := naiveResult{
		out: newGrid(c.q.batch, c.q.rows, c.q.heads, c.v.width),
		dq:  newGrid(c.q.batch, c.q.rows, c.q.heads, c.q.width),
		dk:  newGrid(c.k.batch, c.k.rows, c.k.heads, c.k.width),
		dv:  newGrid(c.v.batch, c.v.rows, c.v.heads, c.v.width),
		lse: make([]float64, c.q.batch*c.q.heads*c.q.rows),
	}
	for b := range c.q.batch {
		for h := range c.q.heads {
			for t := range c.q.rows {
				r.lse[(b*c.q.heads+h)*c.q.rows+t] = c.naiveQuery(&r, b, h, t)
			}
		}
	}
	return r
}

func (c *attentionCase) naiveQuery(r *naiveResult, b, h, t int) (lse float64) {
	hk := h / (c.q.heads / c.k.heads)
	q, out, dout := c.q.row(b, t, h), r.out.row(b, t, h), c.dout.row(b, t, h)
	p := make([]float64, c.k.rows)
	top := math.Inf(-1)
	for s := range p {
		p[s] = math.Inf(-1)
		if c.sees(b, t, s) {
			p[s] = c.scale * dot(q, c.k.row(b, s, hk))
		}
		top = max(top, p[s])
	}
	if math.IsInf(top, -1) {
		return top
	}
	sum := 0.0
	for s := range p {
		p[s] = math.Exp(p[s] - top)
		sum += p[s]
	}
	for s := range p {
		p[s] /= sum
		axpy(out, p[s], c.v.row(b, s, hk))
	}
	delta := dot(out, dout)
	for s := range p {
		axpy(r.dv.row(b, s, hk), p[s], dout)
		ds := c.scale * p[s] * (dot(dout, c.v.row(b, s, hk)) - delta)
		axpy(r.dq.row(b, t, h), ds, c.k.row(b, s, hk))
		axpy(r.dk.row(b, s, hk), ds, q)
	}
	return top + math.Log(sum)
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func axpy(dst []float64, f float64, x []float64) {
	for i := range x {
		dst[i] += f * x[i]
	}
}
