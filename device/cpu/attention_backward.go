package cpu

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// AttentionBackward implements device.Kernels.
func (q *queue) AttentionBackward(dquery, dkey, dvalue, query, key, value, out, lse, dout device.Tensor,
	mask device.Mask, scale float64, ws device.Tensor) {
	switch query.DType() {
	case device.Float32:
		attentionBackwardOf(q, &q.f32.attentionTasks, dquery, dkey, dvalue, query, key, value, out, lse, dout, mask, scale, ws)
	case device.Float64:
		attentionBackwardOf(q, &q.f64.attentionTasks, dquery, dkey, dvalue, query, key, value, out, lse, dout, mask, scale, ws)
	default:
		panic("cpu: attention wants float32 or float64")
	}
}

func attentionBackwardOf[T float](q *queue, tasks *attentionTasks[T],
	dquery, dkey, dvalue, query, key, value, out, lse, dout device.Tensor, mask device.Mask, scale float64, ws device.Tensor) {
	s := shapeOfAttention(query, key, value)
	if ws.Bytes() < int64(s.batch*s.heads*s.queries)*int64(unsafe.Sizeof(*new(T))) {
		panic("cpu: attention: workspace is too small")
	}
	var delta []T
	if n := s.batch * s.heads * s.queries; n > 0 {
		delta = unsafe.Slice((*T)(ws.Pointer()), n)
	}
	s.check(out, s.queries, s.heads, s.width)
	s.check(dout, s.queries, s.heads, s.width)
	s.check(dquery, s.queries, s.heads, s.queryWidth)

	tasks.delta = attentionDelta[T]{attentionShape: s, delta: delta,
		out: viewHeads[T](out), dout: viewHeads[T](dout), dquery: viewHeads[T](dquery)}
	q.run(s.queryTiles()*s.batch*s.heads, &tasks.delta)
	tasks.delta = attentionDelta[T]{}

	s.check(dkey, s.keys, s.keyHeads, s.queryWidth)
	s.check(dvalue, s.keys, s.keyHeads, s.width)
	tasks.backward = attentionBackward[T]{q: q, attentionShape: s, delta: delta, lse: statistics[T](&s, lse), scale: T(scale),
		query: viewHeads[T](query), key: viewHeads[T](key), value: viewHeads[T](value), dout: viewHeads[T](dout),
		dquery: viewHeads[T](dquery), dkey: viewHeads[T](dkey), dvalue: viewHeads[T](dvalue)}
	tasks.backward.run(mask)
	tasks.backward = attentionBackward[T]{}
}

// attentionDelta computes delta = Σ dout·out for one tile of queries of one head
// an iteration (algorithm 2, line 4), and clears dquery, to which key tiles add.
type attentionDelta[T float] struct {
	attentionShape
	delta             []T
	out, dout, dquery headView[T]
}

func (t *attentionDelta[T]) do(_, i int) {
	tile, head := i/t.heads%t.queryTiles(), i%t.heads
	batch := i / t.heads / t.queryTiles()
	delta := t.delta[(batch*t.heads+head)*t.queries:]
	for r := tile * queryTile; r < min((tile+1)*queryTile, t.queries); r++ {
		o := unsafe.Slice((*T)(t.out.at(batch, r, head)), t.width)
		do := unsafe.Slice((*T)(t.dout.at(batch, r, head)), t.width)
		delta[r] = T(dotRow(o, do))
		clear(unsafe.Slice((*T)(t.dquery.at(batch, r, head)), t.queryWidth))
	}
}

// attentionBackward computes dkey and dvalue of one tile of keys of one key head
// an iteration: FlashAttention-2, algorithm 2. Its inner loop runs over the
// query heads of the group and their tiles of queries, in that order.
//
// Every iteration also adds to dquery, where the paper uses atomic additions
// that come in any order. Here tile j of keys waits for the last tile before it
// that shares the queries, so that a sum has one order. Iterations of earlier
// tiles have lower numbers and were therefore taken before: a wait ends. Two
// tiles of keys that run side by side keep one tile of queries apart and hardly
// ever wait.
type attentionBackward[T float] struct {
	q *queue
	attentionShape
	mask                     queryMask
	query, key, value, dout  headView[T]
	dquery, dkey, dvalue     headView[T]
	lse, delta               []T
	scale                    T
	turns                    []int32 // [batch, heads, query tiles]: key tiles that have added to dquery
	scoresAt, dkeyAt, dvalAt int     // byte offsets into a worker's scratch
}

func (t *attentionBackward[T]) run(mask device.Mask) {
	l := scratchLayout{end: gemmScratch}
	t.scoresAt = take[T](&l, 2*queryTile*keyTile)
	t.dkeyAt = take[T](&l, keyTile*t.queryWidth)
	t.dvalAt = take[T](&l, keyTile*t.width)
	spans, turns := spansOf(mask, t.batch, t.queries), t.batch*t.heads*t.queryTiles()
	spansAt := take[querySpan](&l, spans)
	turnsAt := take[int32](&l, turns)
	t.q.reserve(int64(l.end))
	t.mask.resolve(mask, t.batch, t.queries, t.keys, scratch[querySpan](t.q, 0, spansAt, spans))
	t.turns = scratch[int32](t.q, 0, turnsAt, turns)
	clear(t.turns)

	t.q.run(t.keyTiles()*t.batch*t.keyHeads, t)
}

// backwardScratch is what a worker holds while it computes one tile of keys.
type backwardScratch[T float] struct {
	gemm         []byte
	p, dp        []T // [queryTile, keyTile]
	dkey, dvalue []T // [n, Dqk], [n, Dv]
}

// do takes the first tiles of keys first: behind a causal mask the most queries
// see them.
func (t *attentionBackward[T]) do(worker, i int) {
	perTile := t.batch * t.keyHeads
	tile := i / perTile
	batch, keyHead := i%perTile/t.keyHeads, i%t.keyHeads
	first := tile * keyTile
	n := min(keyTile, t.keys-first)

	scores := scratch[T](t.q, worker, t.scoresAt, 2*queryTile*keyTile)
	w := backwardScratch[T]{
		gemm:   scratch[byte](t.q, worker, 0, gemmScratch),
		p:      scores[:queryTile*keyTile],
		dp:     scores[queryTile*keyTile:],
		dkey:   scratch[T](t.q, worker, t.dkeyAt, n*t.queryWidth),
		dvalue: scratch[T](t.q, worker, t.dvalAt, n*t.width),
	}
	clear(w.dkey)
	clear(w.dvalue)
	group := t.heads / t.keyHeads
	for head := keyHead * group; head < (keyHead+1)*group; head++ {
		for queries := range t.queryTiles() {
			if c := t.clip(batch, queries, tile); !c.empty() {
				t.tile(&w, batch, head, keyHead, queries, tile, c)
			}
		}
	}
	for r := range n {
		copy(unsafe.Slice((*T)(t.dkey.at(batch, first+r, keyHead)), t.queryWidth), w.dkey[r*t.queryWidth:])
		copy(unsafe.Slice((*T)(t.dvalue.at(batch, first+r, keyHead)), t.width), w.dvalue[r*t.width:])
	}
}

// clip is what is visible of a pair of tiles.
func (t *attentionBackward[T]) clip(batch, queries, keys int) tileClip {
	return t.mask.clip(batch, queries*queryTile, min((queries+1)*queryTile, t.queries), keys*keyTile, (keys+1)*keyTile)
}

// tile adds what one pair of tiles gives to all three gradients.
func (t *attentionBackward[T]) tile(w *backwardScratch[T], batch, head, keyHead, queryIndex, keyIndex int, c tileClip) {
	level, gemm := t.q.dev.level, unsafe.Pointer(&w.gemm[0])
	queries, keys, skip := c.queryEnd-c.query, c.keyEnd-c.key, c.key-keyIndex*keyTile
	p, dp := unsafe.Pointer(&w.p[0]), unsafe.Pointer(&w.dp[0])
	query, dout := t.query.at(batch, c.query, head), t.dout.at(batch, c.query, head)
	key, value := t.key.at(batch, c.key, keyHead), t.value.at(batch, c.key, keyHead)
	dkey, dvalue := unsafe.SliceData(w.dkey[skip*t.queryWidth:]), unsafe.SliceData(w.dvalue[skip*t.width:])

	gemmTile[T](level, queries, keys, t.queryWidth, query, t.query.row, 1, key, 1, t.key.row, p, keyTile, false, gemm)
	gemmTile[T](level, queries, keys, t.width, dout, t.dout.row, 1, value, 1, t.value.row, dp, keyTile, false, gemm)
	t.scores(w, batch, head, c)
	gemmTile[T](level, keys, t.width, queries, p, 1, keyTile, dout, t.dout.row, 1,
		unsafe.Pointer(dvalue), t.width, true, gemm)
	gemmTile[T](level, keys, t.queryWidth, queries, dp, 1, keyTile, query, t.query.row, 1,
		unsafe.Pointer(dkey), t.queryWidth, true, gemm)

	turn := &t.turns[(batch*t.heads+head)*t.queryTiles()+queryIndex]
	t.await(turn, batch, queryIndex, keyIndex)
	gemmTile[T](level, queries, t.queryWidth, keys, dp, keyTile, 1, key, t.key.row, 1,
		t.dquery.at(batch, c.query, head), t.dquery.row, true, gemm)
	atomic.StoreInt32(turn, int32(keyIndex+1))
}

// scores turns the products q·kᵀ and dout·vᵀ into probabilities and into the
// gradient of q·kᵀ (lines 11 to 14).
func (t *attentionBackward[T]) scores(w *backwardScratch[T], batch, head int, c tileClip) {
	at := (batch*t.heads+head)*t.queries + c.query
	keys := c.keyEnd - c.key
	for r, span := range t.mask.rows(batch, c.query, c.queryEnd) {
		p, dp := w.p[r*keyTile:][:keys], w.dp[r*keyTile:][:keys]
		lo, hi := span.within(c.key, c.keyEnd)
		if lo < hi {
			scoreGradient(t.q.dev.level, p[lo:hi], dp[lo:hi], t.scale, -t.lse[at+r], t.delta[at+r])
		}
		clear(p[:lo])
		clear(p[hi:])
		clear(dp[:lo])
		clear(dp[hi:])
	}
}

// await returns when the last tile of keys before keyIndex that the queries see
// has been added to their gradient.
func (t *attentionBackward[T]) await(turn *int32, batch, queryIndex, keyIndex int) {
	before := keyIndex - 1
	for before >= 0 && t.clip(batch, queryIndex, before).empty() {
		before--
	}
	for spins := 0; atomic.LoadInt32(turn) <= int32(before); spins++ {
		if spins >= t.q.dev.pool.spins {
			runtime.Gosched()
		} else {
			spinPause()
		}
	}
}
