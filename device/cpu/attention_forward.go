package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

const (
	// attentionLanes bounds the queries of a task. It is no part of the order of sums.
	attentionLanes = 192
	// attentionInPlace is how many queries do not pay for copies of the keys and
	// values they see: those of a decoding step.
	attentionInPlace = 16
)

// attentionForward computes some rows of queries of the heads that share a key head an
// iteration: FlashAttention-2, algorithm 1, whose outer loop is parallel and whose
// inner loop over tiles of keys keeps, for every query, a maximum of its scores, the
// sum of their exponentials and the unnormalized output.
//
// A score tile lies key by key, with a lane for each query. So queries are transposed
// once, keys never, and maxima and sums run down the lanes.
type attentionForward[T float] struct {
	q *queue
	attentionShape
	mask                   queryMask
	out, query, key, value headView[T]
	lse                    []T
	first, factor          T // of attentionFactor
	slack                  T // how far scores may exceed the maximum they are taken relative to

	// A task has tileRows rows of tileHeads heads, of headBlocks in a group.
	tileRows, tileHeads, headBlocks    int
	scoreRow, outRow, keyRow, valueRow int // elements between rows in scratch
	at                                 forwardOffsets
}

// forwardOffsets are byte offsets into a worker's scratch.
type forwardOffsets struct{ query, scores, out, key, value, lanes, borders int }

func (t *attentionForward[T]) run(q *queue, out, lse, query, key, value device.Tensor, mask device.Mask, scale float64) {
	t.q = q
	t.query, t.key, t.value, t.out = viewHeads[T](query), viewHeads[T](key), viewHeads[T](value), viewHeads[T](out)
	t.attentionShape = shapeOfAttention(query, key, value)
	t.check(out, t.queries, t.heads, t.width)
	t.lse = statistics[T](&t.attentionShape, lse)
	t.first, t.factor = attentionFactor[T](scale)
	t.slack = T(min(8*math.Ln2/float64(t.factor), 1e30))
	t.cut()

	l := scratchLayout{}
	t.scoreRow, t.outRow = tileRow[T](q.dev.level, attentionLanes), tileRow[T](q.dev.level, t.width)
	t.keyRow, t.valueRow = tileRow[T](q.dev.level, t.queryWidth), tileRow[T](q.dev.level, t.width)
	t.at.query = take[T](&l, attentionLanes*t.queryWidth)
	t.at.scores = take[T](&l, attentionTile*t.scoreRow)
	t.at.out = take[T](&l, attentionLanes*t.outRow)
	t.at.key = take[T](&l, attentionTile*t.keyRow)
	t.at.value = take[T](&l, attentionTile*t.valueRow)
	t.at.lanes = take[T](&l, 3*attentionLanes)
	t.at.borders = take[int32](&l, 2*attentionLanes)
	spansAt := take[querySpan](&l, spansOf(mask, t.batch, t.queries))
	q.reserve(int64(l.end))
	t.mask.resolve(mask, t.batch, t.queries, t.keys, scratch[querySpan](q, 0, spansAt, spansOf(mask, t.batch, t.queries)))

	q.run(ceilDiv(t.queries, t.tileRows)*t.batch*t.keyHeads*t.headBlocks, t)
	*t = attentionForward[T]{}
}

// cut shares rows and heads out to tasks of about equal size, in fours, which are
// transposed at once.
func (t *attentionForward[T]) cut() {
	group := t.heads / max(1, t.keyHeads)
	t.headBlocks = max(1, ceilDiv(group, attentionLanes))
	t.tileHeads = max(1, ceilDiv(group, t.headBlocks))
	most := attentionLanes / t.tileHeads
	t.tileRows = max(1, ceilDiv(t.queries, max(1, ceilDiv(t.queries, most))))
	if rows := roundUp(t.tileRows, 4); rows <= most {
		t.tileRows = rows
	}
}

// forwardTile is what a worker holds while it computes one task.
type forwardTile[T float] struct {
	batch, keyHead, head int // head is the first
	row, rows, heads     int
	lanes, panels        int
	columns              int // lanes of a panel
	strip                int // keys, and lanes, of a strip

	query, scores, out, key, value unsafe.Pointer
	max, sum, shift                []T
	lo, hi                         []int32
	seen                           between // keys that any query sees
	shared                         between // keys that all queries see
}

// do takes one head after the other, whose keys and values then stay near, and the
// last rows first: behind a causal mask they see the most keys, and the short ones at
// the end level out what workers have left.
func (t *attentionForward[T]) do(worker, i int) {
	tiles := ceilDiv(t.queries, t.tileRows)
	row := (tiles - 1 - i%tiles) * t.tileRows
	i /= tiles
	w := forwardTile[T]{
		row: row, batch: i / t.headBlocks / t.keyHeads, keyHead: i / t.headBlocks % t.keyHeads,
		query: scratchAt(t.q, worker, t.at.query), scores: scratchAt(t.q, worker, t.at.scores), out: scratchAt(t.q, worker, t.at.out),
		key: scratchAt(t.q, worker, t.at.key), value: scratchAt(t.q, worker, t.at.value),
	}
	group, block := t.heads/t.keyHeads, i%t.headBlocks*t.tileHeads
	w.head = w.keyHead*group + block
	w.heads, w.rows = min(t.tileHeads, group-block), min(t.tileRows, t.queries-w.row)
	w.lanes = w.heads * w.rows
	w.strip, w.columns = gemmTileOf[T](t.q.dev.level)
	w.panels = ceilDiv(w.lanes, w.columns)
	lanes := scratch[T](t.q, worker, t.at.lanes, 3*attentionLanes)
	w.max, w.sum, w.shift = lanes[:attentionLanes], lanes[attentionLanes:2*attentionLanes], lanes[2*attentionLanes:]
	borders := scratch[int32](t.q, worker, t.at.borders, 2*attentionLanes)
	w.lo, w.hi = borders[:attentionLanes], borders[attentionLanes:]
	t.begin(&w)
	for k := w.seen.from / attentionTile * attentionTile; k < w.seen.to; k += attentionTile {
		t.tile(&w, k)
	}
	t.finish(&w)
}

// begin packs the queries and looks at what they see. Lane h·rows + r is row r of head
// h; those behind the last are queries of zeros that see nothing.
func (t *attentionForward[T]) begin(w *forwardTile[T]) {
	level := t.q.dev.level
	for h := range w.heads {
		packLanes[T](level, w.query, h*w.rows, t.query.at(w.batch, w.row, w.head+h), t.query.row, w.rows, t.queryWidth)
	}
	clearLanes[T](level, w.query, w.lanes, t.queryWidth)
	clear(slice[T](w.out, 0, w.lanes*t.outRow))
	clear(w.sum)
	clear(w.shift) // and not −Inf, as long as nothing was seen: exp(−Inf − 0) is 0
	clear(w.lo)
	clear(w.hi)
	for i := range w.max {
		w.max[i] = T(math.Inf(-1))
	}
	w.shared = between{0, t.keys}
	for r, s := range t.mask.rows(w.batch, w.row, w.row+w.rows) {
		w.seen = w.seen.join(int(s.lo), int(s.hi))
		w.shared = between{max(w.shared.from, int(s.lo)), min(w.shared.to, int(s.hi))}
		for h := range w.heads {
			w.lo[h*w.rows+r], w.hi[h*w.rows+r] = s.lo, s.hi
		}
	}
}

// sees is the interval, from key on, that lanes from i to end see of n keys.
func (w *forwardTile[T]) sees(i, end, key, n int) (seen between) {
	for ; i < min(end, w.lanes); i++ {
		seen = seen.join(max(0, int(w.lo[i])-key), min(n, int(w.hi[i])-key))
	}
	return seen
}

// tile adds the keys of the tile that begins at key.
func (t *attentionForward[T]) tile(w *forwardTile[T], key int) {
	n := min(attentionTile, t.keys-key)
	whole := w.shared.from <= key && w.shared.to >= key+n
	var strips [attentionLanes / gemmRowsGo]between // of lanes, the keys they see
	takes := strips[:ceilDiv(w.lanes, w.strip)]
	if !whole {
		for s := range takes {
			takes[s] = w.sees(s*w.strip, (s+1)*w.strip, key, n)
		}
		if w.sees(0, w.lanes, key, n).empty() {
			return
		}
	}
	keys, values := t.operands(w, key, n)
	for j := range w.panels {
		rows, used := between{0, n}, between{0, n}
		if !whole {
			rows, used = w.sees(j*w.columns, (j+1)*w.columns, key, n), between{}
			for _, s := range takes[j*w.columns/w.strip : min(len(takes), ceilDiv((j+1)*w.columns, w.strip))] {
				used = used.join(s.from, s.to)
			}
		}
		t.panel(w, j, keys, key, rows, whole)
		t.clearScores(w, j, between{used.from, min(rows.from, used.to)})
		t.clearScores(w, j, between{max(rows.to, used.from), used.to})
	}
	size := int(unsafe.Sizeof(*new(T)))
	p := tileSide{data: w.scores, lane: size, step: t.scoreRow * size}
	columns := ceilDiv(t.width, w.columns)
	if whole {
		tileProduct[T](t.q.dev.level, len(takes), columns, n, p, values, w.out, t.outRow*size, true)
	} else {
		tileProductOf[T](t.q.dev.level, takes, columns, p, values, w.out, t.outRow*size, true)
	}
}

// operands returns the tile's keys as rows of a and its values as columns of b: where
// they are if few queries see them, or else copied side by side.
func (t *attentionForward[T]) operands(w *forwardTile[T], key, n int) (keys, values tileSide) {
	level, size := t.q.dev.level, int(unsafe.Sizeof(*new(T)))
	few := w.lanes <= attentionInPlace
	keys = tileSide{data: t.key.at(w.batch, key, w.keyHead), lane: t.key.row * size, step: size}
	if !few || n%w.strip != 0 {
		copyRows[T](level, w.key, t.keyRow, keys.data, t.key.row, n, t.queryWidth)
		keys.data, keys.lane = w.key, t.keyRow*size
	}
	values = tileSide{data: t.value.at(w.batch, key, w.keyHead), step: t.value.row * size, panel: w.columns * size}
	if !few || t.width%w.columns != 0 {
		copyRows[T](level, w.value, t.valueRow, values.data, t.value.row, n, t.width)
		values.data, values.step, values.half = w.value, t.valueRow*size, tileHalf[T](level, t.width)
	}
	return keys, values
}

// panel computes the exponentials of one panel of lanes for the tile's keys in rows.
func (t *attentionForward[T]) panel(w *forwardTile[T], j int, keys tileSide, key int, rows between, whole bool) {
	if rows.empty() {
		return
	}
	level, size := t.q.dev.level, int(unsafe.Sizeof(*new(T)))
	strip, strips := rows.from/w.strip, ceilDiv(rows.to, w.strip)-rows.from/w.strip
	keys.data = unsafe.Add(keys.data, strip*w.strip*keys.lane)
	query := tileSide{data: element[T](w.query, j*w.columns*t.queryWidth), step: w.columns * size}
	to := element[T](w.scores, j*w.columns)
	tileProduct[T](level, strips, 1, t.queryWidth, keys, query, element[T](to, strip*w.strip*t.scoreRow), t.scoreRow*size, false)

	to = element[T](to, rows.from*t.scoreRow)
	n, lane, end := rows.to-rows.from, j*w.columns, (j+1)*w.columns
	if t.first != 1 {
		scaleRows[T](level, to, t.scoreRow, to, t.scoreRow, n, w.columns, t.first)
	}
	var tops [attentionColumns]T
	top := tops[:w.columns]
	for i := range top {
		top[i] = T(math.Inf(-1))
	}
	if whole {
		scoreMaximum(level, to, n, t.scoreRow, top)
	} else {
		scoreMaximumHidden(level, to, n, t.scoreRow, top, key+rows.from, w.lo[lane:end], w.hi[lane:end])
	}
	t.raise(w, lane, top)
	scoreExp(level, to, n, t.scoreRow, w.shift[lane:end], w.sum[lane:end], t.factor)
}

// raise takes the maxima of some lanes into account. As long as a score exceeds the
// maximum before it by little, that one stays: exponentials up to 2⁸ do no harm. Only
// else what was summed is rescaled.
func (t *attentionForward[T]) raise(w *forwardTile[T], lane int, top []T) {
	for i, now := range top {
		before := w.max[lane+i]
		if now > before+t.slack {
			if w.sum[lane+i] != 0 {
				shrink := T(math.Exp(float64(t.factor * (before - now))))
				w.sum[lane+i] *= shrink
				out := slice[T](w.out, (lane+i)*t.outRow, t.width)
				scaledRow(t.q.dev.level, out, out, shrink)
			}
			w.max[lane+i], w.shift[lane+i] = now, now
		}
	}
}

// clearScores zeroes the scores of a panel for some of the tile's keys.
func (t *attentionForward[T]) clearScores(w *forwardTile[T], j int, rows between) {
	for r := rows.from; r < rows.to; r++ {
		clear(slice[T](w.scores, r*t.scoreRow+j*w.columns, w.columns))
	}
}

// finish divides by the sums and writes out and lse.
func (t *attentionForward[T]) finish(w *forwardTile[T]) {
	for i := range w.lanes {
		head, row := w.head+i/w.rows, w.row+i%w.rows
		lse := &t.lse[(w.batch*t.heads+head)*t.queries+row]
		out := slice[T](t.out.at(w.batch, row, head), 0, t.width)
		if w.lo[i] >= w.hi[i] {
			clear(out)
			*lse = T(math.Inf(-1))
			continue
		}
		*lse = T(float64(t.factor)*float64(w.max[i]) + math.Log(float64(w.sum[i])))
		scaledRow(t.q.dev.level, out, slice[T](w.out, i*t.outRow, t.width), 1/w.sum[i])
	}
}
