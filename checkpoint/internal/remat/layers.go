package remat

import (
	"math"
	"slices"
)

// A layer is a part of a Schedule that is decided by itself: ops that may be rerun,
// connected by the values that they read of each other. All its values are made
// and read in a window of the forward pass and in one of the backward pass that
// touch those of no other layer, and layers nest: the first to run forward is the
// last to run backward. In a window of layer l the layers below it therefore hold
// exactly what they save, those above hold nothing, and
//
//	peak = max over l of (saved below l + working peak of l),
//
// where a layer's working peak depends on what is rerun in the layer alone.
type layer struct {
	ops    []layerOp
	values []layerValue
	// points are the layer's steps: those of its window of the forward pass and of
	// what lies between it and the layer below, then those of the backward pass.
	points []point
	// turn is the number of points in the forward pass.
	turn int
	// offset was subtracted from the bytes of all points, so that equal layers at
	// different depths are equal.
	offset int64
}

// layerOp is an op that may be rerun. Ops are in the order of the forward pass.
type layerOp struct {
	op              int // of the Problem
	cost, workspace int64
	in, out         []int // of the layer's values
	again           bool  // never saved
}

// layerValue is a value that the layer decides about.
type layerValue struct {
	size     int64
	producer int // op of the layer, or -1 for what reruns alone still read
	optional bool
	// start is the first point at which the value lives only if it is saved. It is
	// across if that is in the forward pass, or right behind the window there.
	start  int
	across bool
	// first and last are when backward steps need it, in half points: 2p is point
	// p, 2p-1 the reruns before it. Nobody needs it if last < 0.
	first, last int32
}

// point is a step of a layer.
type point struct {
	bytes, before int64 // what lives whatever is decided, at the step and before it
	reads         []int // of the layer's values, by a later step
}

const never = math.MaxInt32

// layers splits a schedule into layers, the first to run forward first, and gives
// the most that lives at any step that belongs to none of them: between the
// last layer's windows. It reports false where an op could be rerun before the
// forward pass is over.
func (s *Schedule) layers() (layers []*layer, top int64, ok bool) {
	d := &division{Schedule: s}
	d.look()
	windows, ok := d.windows()
	if !ok {
		return nil, 0, false
	}
	d.weigh()
	for i, w := range windows {
		below := window{end: -1, start: len(s.Steps)}
		if i > 0 {
			below = windows[i-1]
		}
		layers = append(layers, d.layer(w, below.end+1, below.start))
	}
	from, to := 0, len(s.Steps)
	if len(windows) > 0 {
		from, to = windows[len(windows)-1].end+1, windows[len(windows)-1].start
	}
	for t := from; t < to; t++ {
		top = max(top, d.bytes[t])
	}
	return layers, top, true
}

// division is what is known of a schedule while it is divided.
type division struct {
	*Schedule
	movable []bool // by op: it may be rerun, and a later step may need it
	// By value: the last read in the forward pass, the first and last by a later
	// step, and the last that a rerun can make; -1 without.
	forward, firstLater, lastLater, lastNeed []int
	bytes, before                            []int64 // by step: what lives whatever is decided
}

// look finds who reads what when.
func (d *division) look() {
	n := len(d.Values)
	d.forward, d.firstLater, d.lastLater = slices.Repeat([]int{-1}, n), slices.Repeat([]int{-1}, n), slices.Repeat([]int{-1}, n)
	for i := range d.Ops {
		for _, v := range d.Ops[i].In {
			d.forward[v] = max(d.forward[v], d.First[i])
		}
	}
	for t, step := range d.Steps {
		for _, v := range step.Reads {
			switch {
			case !step.Later:
				d.forward[v] = max(d.forward[v], t)
			case d.firstLater[v] < 0:
				d.firstLater[v], d.lastLater[v] = t, t
			default:
				d.lastLater[v] = t
			}
		}
	}
	d.lastNeed = slices.Clone(d.lastLater)
	d.movable = make([]bool, len(d.Ops))
	for i := len(d.Ops) - 1; i >= 0; i-- {
		op := &d.Ops[i]
		last := -1
		for _, v := range op.Out {
			last = max(last, d.lastNeed[v])
		}
		if op.Fixed == Once || last < 0 {
			continue
		}
		d.movable[i] = true
		for _, v := range op.In {
			d.lastNeed[v] = max(d.lastNeed[v], last)
		}
	}
}

// settled is the last step at which v lives whatever is decided.
func (d *division) settled(v int) int {
	p, last := d.Values[v].Producer, d.forward[v]
	if !d.movable[p] {
		last = max(last, d.lastLater[v])
	}
	if last < 0 && d.Values[v].Optional {
		return d.First[p] - 1
	}
	return max(d.First[p], last)
}

// window is where a layer's values live: from the steps begin to end of the forward
// pass, and start to stop of the backward pass.
type window struct {
	begin, end, start, stop int
	ops                     []int
	tails                   []int // values of others, for reruns
}

// windows finds the layers' windows, in the order of the forward pass.
func (d *division) windows() ([]window, bool) {
	group := d.connect()
	boundary := len(d.Steps)
	for t, step := range d.Steps {
		if step.Later && len(step.Reads) > 0 {
			boundary = t
			break
		}
	}
	at := map[int]int{} // window of a group
	var windows []window
	for i := range d.Ops {
		if !d.movable[i] {
			continue
		}
		g := group.find(i)
		w, known := at[g]
		if !known {
			w = len(windows)
			at[g] = w
			windows = append(windows, window{begin: d.First[i], end: -1, start: len(d.Steps), stop: -1})
		}
		if !d.widen(&windows[w], i, boundary) {
			return nil, false
		}
	}
	slices.SortStableFunc(windows, func(a, b window) int { return a.begin - b.begin })
	return nest(windows), true
}

// connect joins the ops that read values of each other, and those that read a value
// beyond its settled life.
func (d *division) connect() union {
	group := newUnion(len(d.Ops))
	tail := map[int]int{}
	for i := range d.Ops {
		if !d.movable[i] {
			continue
		}
		for _, v := range d.Ops[i].In {
			if p := d.Values[v].Producer; d.movable[p] {
				group.join(p, i)
			} else if d.hasTail(v, i) {
				if other, ok := tail[v]; ok {
					group.join(other, i)
				}
				tail[v] = i
			}
		}
	}
	return group
}

// hasTail reports whether a rerun of op may read v, which no rerun makes, when
// nobody else needs it any more.
func (d *division) hasTail(v, op int) bool {
	last := -1
	for _, o := range d.Ops[op].Out {
		last = max(last, d.lastNeed[o])
	}
	return last > d.settled(v)
}

// widen makes a window hold the lives of what op makes, and the tails of what it
// reads.
func (d *division) widen(w *window, op, boundary int) bool {
	w.ops = append(w.ops, op)
	w.begin = min(w.begin, d.First[op])
	for _, v := range d.Ops[op].Out {
		if d.settled(v) >= boundary {
			return false
		}
		w.end = max(w.end, d.settled(v), d.First[op])
		if d.firstLater[v] >= 0 {
			w.start, w.stop = min(w.start, d.firstLater[v]), max(w.stop, d.lastLater[v])
		}
	}
	for _, v := range d.Ops[op].In {
		if d.movable[d.Values[v].Producer] || !d.hasTail(v, op) {
			continue
		}
		if !slices.Contains(w.tails, v) {
			w.tails = append(w.tails, v)
		}
		if from := d.settled(v); from < boundary {
			w.begin, w.end = min(w.begin, from+1), max(w.end, from)
		} else {
			w.start = min(w.start, from+1)
		}
	}
	return true
}

// nest merges windows, sorted by their begin, until they are disjoint and nest.
func nest(windows []window) []window {
	var stack []window
	for _, w := range windows {
		for len(stack) > 0 {
			below := stack[len(stack)-1]
			if below.end < w.begin && w.stop < below.start {
				break
			}
			w = window{min(below.begin, w.begin), max(below.end, w.end), min(below.start, w.start), max(below.stop, w.stop),
				append(slices.Clone(below.ops), w.ops...), append(slices.Clone(below.tails), w.tails...)}
			stack = stack[:len(stack)-1]
		}
		stack = append(stack, w)
	}
	for i := range stack {
		slices.Sort(stack[i].ops)
	}
	return stack
}

// weigh sums what lives at each step whatever is decided.
func (d *division) weigh() {
	n := len(d.Steps)
	at, before := make([]int64, n+1), make([]int64, n+1)
	for v := range d.Values {
		size, begin, end := d.Values[v].Size, d.First[d.Values[v].Producer], d.settled(v)
		if end < begin {
			continue
		}
		at[begin] += size
		at[end+1] -= size
		before[begin+1] += size
		before[end+1] -= size
	}
	d.bytes, d.before = make([]int64, n), make([]int64, n)
	var a, b int64
	for t, step := range d.Steps {
		a, b = a+at[t], b+before[t]
		d.bytes[t], d.before[t] = a+step.Bytes, b+step.Before
	}
}

// layer makes a layer of the window w. Its points are the steps from begin to the
// window's end, and from its start to before stop.
func (d *division) layer(w window, begin, stop int) *layer {
	l := &layer{offset: math.MaxInt64}
	place := map[int]int{} // of a step among the points
	for t := begin; t < stop; t++ {
		if t > w.end && t < w.start {
			continue
		}
		place[t] = len(l.points)
		l.points = append(l.points, point{bytes: d.bytes[t], before: d.before[t]})
		l.offset = min(l.offset, d.bytes[t], d.before[t])
		if t <= w.end {
			l.turn = len(l.points)
		}
	}
	for i := range l.points {
		l.points[i].bytes -= l.offset
		l.points[i].before -= l.offset
	}
	d.fill(l, w, place)
	l.flatten()
	return l
}

// flatten lowers a pass that lies above all that the other can reach until it just does: the
// peak is in that pass, and layers with more below it are equal to those with less.
func (l *layer) flatten() {
	var values, workspace int64
	for _, v := range l.values {
		values += v.size
	}
	for _, o := range l.ops {
		workspace = max(workspace, o.workspace)
	}
	lower := func(points []point, above int64) {
		least := int64(math.MaxInt64)
		for _, p := range points {
			least = min(least, p.bytes, p.before)
		}
		by := least - above
		if len(points) == 0 || by <= 0 {
			return
		}
		l.offset += by
		for i := range points {
			points[i].bytes -= by
			points[i].before -= by
		}
	}
	reach := func(points []point) (most int64) {
		for _, p := range points {
			most = max(most, p.bytes, p.before)
		}
		return most + values + workspace
	}
	forward, backward := l.points[:l.turn], l.points[l.turn:]
	lower(backward, reach(forward))
	lower(forward, reach(backward))
}

// fill adds ops and values.
func (d *division) fill(l *layer, w window, place map[int]int) {
	values := map[int]int{}
	add := func(v, producer int) {
		value := layerValue{size: d.Values[v].Size, producer: producer, optional: d.Values[v].Optional, first: never, last: -1}
		value.start = l.turn
		from := d.settled(v) + 1
		if value.across = from <= w.end+1; from <= w.end || from >= w.start {
			value.start = place[from]
		}
		if producer >= 0 && d.firstLater[v] >= 0 {
			value.first, value.last = int32(2*place[d.firstLater[v]]), int32(2*place[d.lastLater[v]])
		}
		values[v] = len(l.values)
		l.values = append(l.values, value)
	}
	for _, v := range w.tails {
		if _, ok := values[v]; !ok {
			add(v, -1)
		}
	}
	for i, op := range w.ops {
		o := layerOp{op: op, cost: d.Ops[op].Cost, workspace: d.Workspace[op], again: d.Ops[op].Fixed == Again}
		for _, v := range d.Ops[op].In {
			if local, ok := values[v]; ok {
				o.in = append(o.in, local)
			}
		}
		for _, v := range d.Ops[op].Out {
			add(v, i)
			o.out = append(o.out, values[v])
		}
		l.ops = append(l.ops, o)
	}
	for t, p := range place {
		if !d.Steps[t].Later {
			continue
		}
		for _, v := range d.Steps[t].Reads {
			if local, ok := values[v]; ok && l.values[local].producer >= 0 {
				l.points[p].reads = append(l.points[p].reads, local)
			}
		}
	}
}

// union is a set of disjoint groups.
type union []int

func newUnion(n int) union {
	u := make(union, n)
	for i := range u {
		u[i] = i
	}
	return u
}

func (u union) find(i int) int {
	for u[i] != i {
		u[i] = u[u[i]]
		i = u[i]
	}
	return i
}

func (u union) join(i, j int) { u[u.find(i)] = u.find(j) }
