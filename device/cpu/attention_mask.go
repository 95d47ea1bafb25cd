package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// querySpan is the interval [lo, hi) of keys that a query sees; empty is lo ≥ hi.
type querySpan struct{ lo, hi int32 }

// within returns the part of the span inside the keys [first, last), counted
// from first, with 0 ≤ lo ≤ hi.
func (s querySpan) within(first, last int) (lo, hi int) {
	lo = max(int(s.lo), first)
	hi = max(min(int(s.hi), last), lo)
	if lo >= last {
		return 0, 0
	}
	return lo - first, hi - first
}

// queryMask holds the span of every query. A mask hides whole intervals, so
// kernels cut rows of scores instead of testing elements: a tile that is wholly
// visible is a tile whose rows are not cut.
type queryMask struct {
	spans []querySpan
	batch int // distance between the spans of two sequences, 0 if they share
}

// spansOf is the number of spans to hold: without Start and End the sequences
// of a batch share theirs.
func spansOf(m device.Mask, batch, queries int) int {
	if m.Start.IsZero() && m.End.IsZero() {
		return queries
	}
	return batch * queries
}

// resolve computes the span of every query into memory of spansOf elements.
func (q *queryMask) resolve(m device.Mask, batch, queries, keys int, spans []querySpan) {
	q.spans, q.batch = spans, 0
	sequences := min(batch, 1)
	if len(spans) > queries {
		q.batch, sequences = queries, batch
	}
	for b := range sequences {
		for t := range queries {
			lo, hi := visible(m, t+m.Offset, keys)
			if !m.Start.IsZero() {
				lo = max(lo, border(m.Start, b, t))
			}
			if !m.End.IsZero() {
				hi = min(hi, border(m.End, b, t))
			}
			spans[b*q.batch+t] = querySpan{int32(lo), int32(max(lo, hi))}
		}
	}
}

// visible is the interval that Causal, Window and Block leave to the query at
// key position p.
func visible(m device.Mask, p, keys int) (lo, hi int) {
	lo, hi = 0, keys
	if m.Causal {
		hi = min(hi, p+1)
	}
	if m.Window > 0 {
		lo = max(lo, p-m.Window+1)
	}
	if m.Block > 0 {
		within := p % m.Block
		if within < 0 {
			within += m.Block
		}
		lo = max(lo, p-within)
		hi = min(hi, p-within+m.Block)
	}
	return lo, hi
}

func border(t device.Tensor, b, i int) int {
	return int(*(*int32)(unsafe.Add(t.Pointer(), 4*(b*t.Stride(0)+i*t.Stride(1)))))
}

// rows are the spans of the queries [first, last) of one sequence.
func (q *queryMask) rows(batch, first, last int) []querySpan {
	return q.spans[batch*q.batch+first : batch*q.batch+last]
}

// tileClip is the interval of queries [query, queryEnd) that see any of a tile's keys,
// and whether all of them see the whole tile.
type tileClip struct {
	query, queryEnd int
	whole           bool
}

func (c tileClip) empty() bool { return c.query >= c.queryEnd }

// clip cuts the tile of queries [first, last) and keys [key, keyEnd) to the queries
// that see any of it. The rest is not even multiplied.
func (q *queryMask) clip(batch, first, last, key, keyEnd int) (c tileClip) {
	c.whole = true
	for r, s := range q.rows(batch, first, last) {
		lo, hi := max(int(s.lo), key), min(int(s.hi), keyEnd)
		if lo >= hi {
			continue
		}
		if c.queryEnd == 0 {
			c.query = first + r
		}
		c.whole = c.whole && lo == key && hi == keyEnd && (c.queryEnd == 0 || c.queryEnd == first+r)
		c.queryEnd = first + r + 1
	}
	return c
}
