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

	tasks.delta = attentionDelta[T]{level: q.dev.level, attentionShape: s, delta: delta,
		out: viewHeads[T](out), dout: viewHeads[T](dout), dquery: viewHeads[T](dquery)}
	q.run(ceilDiv(s.batch*s.queries, deltaRows), &tasks.delta)
	tasks.delta = attentionDelta[T]{}

	s.check(dkey, s.keys, s.keyHeads, s.queryWidth)
	s.check(dvalue, s.keys, s.keyHeads, s.width)
	tasks.backward = attentionBackward[T]{q: q, attentionShape: s, delta: delta, lse: statistics[T](&s, lse), scale: T(scale),
		query: viewHeads[T](query), key: viewHeads[T](key), value: viewHeads[T](value), dout: viewHeads[T](dout),
		dquery: viewHeads[T](dquery), dkey: viewHeads[T](dkey), dvalue: viewHeads[T](dvalue)}
	tasks.backward.first, tasks.backward.factor = attentionFactor[T](scale)
	tasks.backward.run(mask)
	tasks.backward = attentionBackward[T]{}
}

// attentionDelta computes delta = Σ dout·out for some rows of queries an iteration
// (algorithm 2, line 4), and clears dquery, to which key tiles add. It takes all heads of a
// row, which mostly lie side by side.
type attentionDelta[T float] struct {
	level level
	attentionShape
	delta             []T
	out, dout, dquery headView[T]
}

func (t *attentionDelta[T]) do(_, i int) {
	for row := i * deltaRows; row < min((i+1)*deltaRows, t.batch*t.queries); row++ {
		batch, r := row/t.queries, row%t.queries
		for head := range t.heads {
			o := unsafe.Slice((*T)(t.out.at(batch, r, head)), t.width)
			do := unsafe.Slice((*T)(t.dout.at(batch, r, head)), t.width)
			t.delta[(batch*t.heads+head)*t.queries+r] = T(dotRow(t.level, o, do))
			clear(unsafe.Slice((*T)(t.dquery.at(batch, r, head)), t.queryWidth))
		}
	}
}

// deltaRows is how many rows of queries a task of attentionDelta has.
const deltaRows = 16

// attentionBackward computes dkey and dvalue of one tile of keys of one key head
// an iteration: FlashAttention-2, algorithm 2. Its inner loop runs over the
// query heads of the group and their tiles of queries, in that order.
//
// Keys and values are transposed once a task. Tiles of queries and of dout are copied
// side by side: so they are both rows of a, for scores, and columns of b, for dkey and
// dvalue.
//
// Every iteration also adds to dquery, where the paper uses atomic additions
// that come in any order. Here tile j of keys waits for the last tile before it
// that shares the queries, so that a sum has one order. Iterations of earlier
// tiles have lower numbers and were therefore taken before: a wait ends. Workers
// take tiles of different heads side by side and hardly ever wait.
type attentionBackward[T float] struct {
	q *queue
	attentionShape
	mask                    queryMask
	query, key, value, dout headView[T]
	dquery, dkey, dvalue    headView[T]
	lse, delta              []T
	scale, first, factor    T       // and those of attentionFactor
	turns                   []int32 // [batch, heads, query tiles]: key tiles that have added to dquery

	scoreRow, keyRow, valueRow int // elements between rows in scratch
	at                         backwardOffsets
}

// backwardOffsets are byte offsets into a worker's scratch.
type backwardOffsets struct{ p, dp, query, dout, key, keyPanels, valuePanels, dkey, dvalue, shift int }

func (t *attentionBackward[T]) run(mask device.Mask) {
	level, l := t.q.dev.level, scratchLayout{}
	t.scoreRow, t.keyRow, t.valueRow = tileRow[T](level, attentionTile), tileRow[T](level, t.queryWidth), tileRow[T](level, t.width)
	t.at = backwardOffsets{
		p: take[T](&l, attentionTile*t.scoreRow), dp: take[T](&l, attentionTile*t.scoreRow),
		query: take[T](&l, attentionTile*t.keyRow), dout: take[T](&l, attentionTile*max(t.keyRow, t.valueRow)),
		key:       take[T](&l, attentionTile*t.keyRow),
		keyPanels: take[T](&l, attentionTile*t.queryWidth), valuePanels: take[T](&l, attentionTile*t.width),
		dkey: take[T](&l, attentionTile*t.keyRow), dvalue: take[T](&l, attentionTile*t.valueRow),
		shift: take[T](&l, attentionTile),
	}
	spans, turns := spansOf(mask, t.batch, t.queries), t.batch*t.heads*t.queryTiles()
	spansAt := take[querySpan](&l, spans)
	turnsAt := take[int32](&l, turns)
	t.q.reserve(int64(l.end))
	t.mask.resolve(mask, t.batch, t.queries, t.keys, scratch[querySpan](t.q, 0, spansAt, spans))
	t.turns = scratch[int32](t.q, 0, turnsAt, turns)
	clear(t.turns)

	t.q.run(t.keyTiles()*t.batch*t.keyHeads, t)
}

// backwardTile is what a worker holds while it computes one tile of keys.
type backwardTile[T float] struct {
	batch, keyHead, index, keys int // the tile's index and how many keys it has

	p, dp                          unsafe.Pointer // [query, key]
	query, dout, key, dkey, dvalue unsafe.Pointer // rows
	keyPanels, valuePanels         unsafe.Pointer // key's and value's panels of columns of b
	shift                          []T
}

// do takes as many heads at a time as there are workers, and of those the first tiles
// first: behind a causal mask the most queries see them.
func (t *attentionBackward[T]) do(worker, i int) {
	level, tiles, together := t.q.dev.level, t.keyTiles(), t.q.dev.pool.workers
	block := i / (tiles * together) * together
	i -= block * tiles
	together = min(together, t.batch*t.keyHeads-block)
	head := block + i%together
	w := backwardTile[T]{
		batch: head / t.keyHeads, keyHead: head % t.keyHeads, index: i / together,
		p: scratchAt(t.q, worker, t.at.p), dp: scratchAt(t.q, worker, t.at.dp),
		query: scratchAt(t.q, worker, t.at.query), dout: scratchAt(t.q, worker, t.at.dout), key: scratchAt(t.q, worker, t.at.key),
		dkey: scratchAt(t.q, worker, t.at.dkey), dvalue: scratchAt(t.q, worker, t.at.dvalue),
		keyPanels: scratchAt(t.q, worker, t.at.keyPanels), valuePanels: scratchAt(t.q, worker, t.at.valuePanels),
		shift: scratch[T](t.q, worker, t.at.shift, attentionTile),
	}
	first := w.index * attentionTile
	w.keys = min(attentionTile, t.keys-first)
	key, value := t.key.at(w.batch, first, w.keyHead), t.value.at(w.batch, first, w.keyHead)
	copyRows[T](level, w.key, t.keyRow, key, t.key.row, w.keys, t.queryWidth)
	packLanes[T](level, w.keyPanels, 0, key, t.key.row, w.keys, t.queryWidth)
	packLanes[T](level, w.valuePanels, 0, value, t.value.row, w.keys, t.width)
	clearLanes[T](level, w.keyPanels, w.keys, t.queryWidth)
	clearLanes[T](level, w.valuePanels, w.keys, t.width)
	clear(slice[T](w.dkey, 0, w.keys*t.keyRow))
	clear(slice[T](w.dvalue, 0, w.keys*t.valueRow))

	group := t.heads / t.keyHeads
	for head := w.keyHead * group; head < (w.keyHead+1)*group; head++ {
		for queries := range t.queryTiles() {
			if c := t.clip(w.batch, queries, w.index); !c.empty() {
				t.tile(&w, head, queries, c)
			}
		}
	}
	scaleRows[T](level, t.dkey.at(w.batch, first, w.keyHead), t.dkey.row, w.dkey, t.keyRow, w.keys, t.queryWidth, t.scale)
	copyRows[T](level, t.dvalue.at(w.batch, first, w.keyHead), t.dvalue.row, w.dvalue, t.valueRow, w.keys, t.width)
}

func (s *attentionShape) queryTiles() int { return ceilDiv(s.queries, attentionTile) }

// clip is what is visible of a pair of tiles.
func (t *attentionBackward[T]) clip(batch, queries, keys int) tileClip {
	first := queries * attentionTile
	return t.mask.clip(batch, first, min(first+attentionTile, t.queries), keys*attentionTile, min((keys+1)*attentionTile, t.keys))
}

// tile adds what one pair of tiles gives to all three gradients.
func (t *attentionBackward[T]) tile(w *backwardTile[T], head, queryIndex int, c tileClip) {
	level, size := t.q.dev.level, int(unsafe.Sizeof(*new(T)))
	strip, columns := gemmTileOf[T](level)
	n := c.queryEnd - c.query
	copyRows[T](level, w.query, t.keyRow, t.query.at(w.batch, c.query, head), t.query.row, n, t.queryWidth)
	copyRows[T](level, w.dout, t.valueRow, t.dout.at(w.batch, c.query, head), t.dout.row, n, t.width)
	query := tileSide{data: w.query, lane: t.keyRow * size, step: size}
	dout := tileSide{data: w.dout, lane: t.valueRow * size, step: size}
	queryColumns := tileSide{data: w.query, step: t.keyRow * size, panel: columns * size, half: tileHalf[T](level, t.queryWidth)}
	doutColumns := tileSide{data: w.dout, step: t.valueRow * size, panel: columns * size, half: tileHalf[T](level, t.width)}
	key := tileSide{data: w.keyPanels, step: columns * size, panel: t.queryWidth * columns * size}
	value := tileSide{data: w.valuePanels, step: columns * size, panel: t.width * columns * size}
	keyColumns := tileSide{data: w.key, step: t.keyRow * size, panel: columns * size, half: tileHalf[T](level, t.queryWidth)}
	p, dp := tileSide{data: w.p, lane: t.scoreRow * size, step: size}, tileSide{data: w.dp, lane: t.scoreRow * size, step: size}
	scoreRow, keyRow, valueRow := t.scoreRow*size, t.keyRow*size, t.valueRow*size
	strips, keyStrips, panels := ceilDiv(n, strip), ceilDiv(w.keys, strip), ceilDiv(w.keys, columns)
	wide, high := ceilDiv(t.queryWidth, columns), ceilDiv(t.width, columns)

	if c.whole {
		tileProduct[T](level, strips, panels, t.queryWidth, query, key, w.p, scoreRow, false)
		tileProduct[T](level, strips, panels, t.width, dout, value, w.dp, scoreRow, false)
		t.scores(w, head, c)
		tileProduct[T](level, keyStrips, high, n, p.turned(), doutColumns, w.dvalue, valueRow, true)
		tileProduct[T](level, keyStrips, wide, n, dp.turned(), queryColumns, w.dkey, keyRow, true)
		tileProduct[T](level, strips, wide, w.keys, dp, keyColumns, w.dout, keyRow, false)
	} else {
		seen := t.seen(w, c)
		for j := range panels {
			// The queries that see a panel are those that see one of its strips, or more.
			rows := seen.rows(j*columns/strip, ceilDiv((j+1)*columns, strip))
			if rows.empty() {
				continue
			}
			from, count := rows.from/strip*strip, ceilDiv(rows.to, strip)-rows.from/strip
			to := (from*t.scoreRow + j*columns) * size
			tileProduct[T](level, count, 1, t.queryWidth, query.from(from), key.columnsFrom(j), unsafe.Add(w.p, to), scoreRow, false)
			tileProduct[T](level, count, 1, t.width, dout.from(from), value.columnsFrom(j), unsafe.Add(w.dp, to), scoreRow, false)
		}
		t.scores(w, head, c)
		tileProductOf[T](level, seen.byKey[:keyStrips], high, p.turned(), doutColumns, w.dvalue, valueRow, true)
		tileProductOf[T](level, seen.byKey[:keyStrips], wide, dp.turned(), queryColumns, w.dkey, keyRow, true)
		tileProductOf[T](level, seen.byQuery[:strips], wide, dp, keyColumns, w.dout, keyRow, false)
	}

	turn := &t.turns[(w.batch*t.heads+head)*t.queryTiles()+queryIndex]
	t.await(turn, w.batch, queryIndex, w.index)
	addRows[T](level, t.dquery.at(w.batch, c.query, head), t.dquery.row, w.dout, t.keyRow, n, t.queryWidth, t.scale)
	atomic.StoreInt32(turn, int32(w.index+1))
}

// tileSeen tells of each strip of keys which queries see any of it, and of each strip
// of queries which keys they see, counted from the clip's first query and the tile's
// first key.
type tileSeen struct{ byKey, byQuery [attentionStrips]between }

func (t *attentionBackward[T]) seen(w *backwardTile[T], c tileClip) (seen tileSeen) {
	strip, _ := gemmTileOf[T](t.q.dev.level)
	first := w.index * attentionTile
	for r, span := range t.mask.rows(w.batch, c.query, c.queryEnd) {
		lo, hi := span.within(first, first+w.keys)
		seen.byQuery[r/strip] = seen.byQuery[r/strip].join(lo, hi)
		for s := lo / strip; s*strip < hi; s++ {
			seen.byKey[s] = seen.byKey[s].join(r, r+1)
		}
	}
	return seen
}

// rows is what the strips of keys see together.
func (s *tileSeen) rows(from, to int) (rows between) {
	for _, r := range s.byKey[from:min(to, len(s.byKey))] {
		rows = rows.join(r.from, r.to)
	}
	return rows
}

// scores turns the products q·kᵀ and dout·vᵀ into probabilities and into the
// gradient of q·kᵀ (lines 11 to 14), but for the scale.
func (t *attentionBackward[T]) scores(w *backwardTile[T], head int, c tileClip) {
	level := t.q.dev.level
	_, columns := gemmTileOf[T](level)
	at, n, panels := (w.batch*t.heads+head)*t.queries+c.query, c.queryEnd-c.query, ceilDiv(w.keys, columns)
	if t.first != 1 {
		scaleRows[T](level, w.p, t.scoreRow, w.p, t.scoreRow, n, panels*columns, t.first)
	}
	for r := range n {
		w.shift[r] = t.lse[at+r] / t.factor
	}
	scoreGradient(level, w.p, w.dp, n, panels, columns, t.scoreRow, w.shift, t.delta[at:], t.factor)
	if c.whole {
		return
	}
	first := w.index * attentionTile
	for r, span := range t.mask.rows(w.batch, c.query, c.queryEnd) {
		lo, hi := span.within(first, first+w.keys)
		for _, tile := range [...]unsafe.Pointer{w.p, w.dp} {
			row := slice[T](tile, r*t.scoreRow, panels*columns)
			clear(row[:lo])
			clear(row[hi:])
		}
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
