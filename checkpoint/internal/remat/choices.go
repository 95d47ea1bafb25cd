package remat

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// offer is what a decision about a layer comes to: what it saves, its working peak
// without the layer's offset, and what its reruns cost.
type offer struct{ saved, work, cost int64 }

// choice is a decision about a layer: a set of its ops.
type choice struct {
	offer
	rerun uint64
}

// menu are the decisions about a layer that no other beats.
type menu struct {
	choices []choice
	// bounds are offers such that every decision, also one that choices lack, is no
	// better in all three than one of them.
	bounds []offer
}

const (
	// maxOps are the ops that a layer may have for its menu to be found.
	maxOps = 64
	// exactOps are the ops up to which a menu looks at every decision.
	exactOps = 12
)

// partials are how many partial decisions that do not beat each other are kept, search by
// search: the decisions that one finds are such that in the next most partial ones cannot
// keep up, and need not be merged.
var partials = []int{300, 3000, 40_000}

// choose finds the layer's menu.
func (l *layer) choose() menu {
	if len(l.ops) > exactOps {
		return l.chooseAmong(partials)
	}
	m := l.chooseAmong([]int{math.MaxInt})
	m.bounds = nil
	for _, q := range m.choices { // that is all there are
		m.bounds = append(m.bounds, q.offer)
	}
	return m
}

// chooseAmong finds a menu by searches that keep so many partial decisions.
func (l *layer) chooseAmong(partials []int) menu {
	c := &chooser{layer: l, spans: l.spans()}
	var bounds []offer
	for _, most := range partials {
		c.merged = false
		if bounds = c.search(most); !c.merged {
			break // more would find no more
		}
	}
	return menu{choices: c.found, bounds: bounds}
}

// search is dynamic programming over the layer's ops from the last to the first, so that
// who needs an op's values is known when it is decided about. Of partial decisions that
// need the same of the ops before, those stay that no other beats in cost, saved bytes
// and memory at each step; of more than a number of them, similar ones are merged. It
// adds what it finds to found, and returns offers that no decision undercuts.
func (c *chooser) search(most int) (bounds []offer) {
	c.saved = nil
	states := []*partial{c.start()}
	for i := len(c.ops) - 1; i >= 0; i-- {
		var next []*partial
		for _, p := range states {
			next = c.decide(next, p, i)
		}
		if states = next; len(c.ops) > exactOps {
			states = c.prune(states, most)
		}
	}
	for _, q := range c.found {
		bounds = append(bounds, q.offer)
	}
	for _, p := range states {
		c.found = append(c.found, choice{offer{p.saved, c.peak(p.rerun), p.cost}, p.rerun})
		bounds = append(bounds, offer{p.least.saved, c.work(p.least.live), p.least.cost})
	}
	c.found = undominated(c.found, func(q choice) offer { return q.offer })
	return undominated(bounds, func(o offer) offer { return o })
}

// undominated returns the items of which no other is as good in all three, sorted by
// cost.
func undominated[T any](items []T, of func(T) offer) []T {
	slices.SortStableFunc(items, func(a, b T) int {
		x, y := of(a), of(b)
		return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(x.saved, y.saved), cmp.Compare(x.work, y.work))
	})
	var kept []T
	for _, item := range items {
		o := of(item)
		if !slices.ContainsFunc(kept, func(k T) bool { return of(k).saved <= o.saved && of(k).work <= o.work }) {
			kept = append(kept, item)
		}
	}
	return kept
}

// chooser finds a menu.
type chooser struct {
	*layer
	spans []span
	found []choice // that do not beat each other, sorted by cost
	saved []offer  // of those found before the search, sorted by saved bytes
	// merged tells that the search made one of several partial decisions.
	merged bool
}

// partial is a decision about the last ops of a layer.
type partial struct {
	rerun       uint64
	first, last []int32 // by value: as in layerValue, with the needs of reruns
	totals
	// least is undercut by no partial decision that was merged into this one.
	least totals
}

// totals are sums over what has been decided.
type totals struct {
	saved, cost int64
	live        []int64 // by span
}

func (t totals) clone() totals { return totals{t.saved, t.cost, slices.Clone(t.live)} }

func (c *chooser) start() *partial {
	p := &partial{first: make([]int32, len(c.values)), last: make([]int32, len(c.values))}
	for v, value := range c.values {
		p.first[v], p.last[v] = value.first, value.last
	}
	p.live = make([]int64, len(c.spans))
	p.least = p.totals.clone()
	return p
}

// decide appends what may become of p, which it takes, when op i is decided about.
func (c *chooser) decide(to []*partial, p *partial, i int) []*partial {
	op := &c.ops[i]
	need := int32(never)
	for _, v := range op.out {
		need = min(need, p.first[v])
	}
	if need == never {
		return append(to, p)
	}
	if !op.again {
		q := p.clone()
		for _, v := range op.out {
			if p.last[v] >= 0 {
				q.save(c.values[v].size)
				c.lives(q, v, c.values[v].start, p.last[v])
			}
		}
		to = append(to, c.forget(q, op))
	}
	at := (need - 1) | 1 // an odd half point: before a step
	if need%2 == 1 {
		at = need
	}
	p.rerun |= 1 << i
	p.pay(op.cost)
	for _, v := range op.out {
		if p.last[v] >= 0 {
			c.lives(p, v, int(at+1)/2, p.last[v])
		}
	}
	for _, v := range op.in {
		if c.values[v].producer < 0 {
			c.extend(p, v, at)
			continue
		}
		p.first[v], p.last[v] = min(p.first[v], at), max(p.last[v], at)
	}
	return append(to, c.forget(p, op))
}

func (p *partial) clone() *partial {
	return &partial{p.rerun, slices.Clone(p.first), slices.Clone(p.last), p.totals.clone(), p.least.clone()}
}

func (p *partial) save(bytes int64) {
	p.saved += bytes
	p.least.saved += bytes
}

func (p *partial) pay(cost int64) {
	p.cost += cost
	p.least.cost += cost
}

// lives lets value v live from a point to a half point.
func (c *chooser) lives(p *partial, v, from int, last int32) {
	to := int(last) / 2 // before a step is behind the one before it
	for s := range c.spans {
		if from <= c.spans[s].point && c.spans[s].point <= to {
			p.live[s] += c.values[v].size
			p.least.live[s] += c.values[v].size
		}
	}
}

// extend keeps a value of another layer for a rerun.
func (c *chooser) extend(p *partial, v int, at int32) {
	if p.last[v] >= at {
		return
	}
	start := c.values[v].start
	if p.last[v] < 0 && c.values[v].across {
		p.save(c.values[v].size)
	}
	if p.last[v] >= 0 {
		start = max(start, int(p.last[v])/2+1)
	}
	c.lives(p, v, start, at)
	p.last[v] = at
}

// forget makes partial decisions alike that differ in needs that have been met.
func (c *chooser) forget(p *partial, op *layerOp) *partial {
	for _, v := range op.out {
		p.first[v], p.last[v] = never, -1
	}
	return p
}

func (c *chooser) work(live []int64) int64 {
	var most int64
	for s, span := range c.spans {
		most = max(most, span.bytes+live[s])
	}
	return most
}

// needs appends to b what identifies the needs that a partial decision has of the ops
// before.
func (p *partial) needs(b []byte) []byte {
	for v := range p.first {
		b = binary.AppendVarint(b, int64(p.first[v]))
		b = binary.AppendVarint(b, int64(p.last[v]))
	}
	return b
}

// prune drops what others beat, and merges what is similar until little enough is
// left.
func (c *chooser) prune(states []*partial, most int) []*partial {
	c.lookAtFound()
	beaten := make([]bool, len(states))
	inParts(len(states), func(begin, end int) {
		for i := begin; i < end; i++ {
			beaten[i] = c.beaten(states[i])
		}
	})
	groups := map[string]int{}
	var sorted [][]*partial
	var needs []byte
	for i, p := range states {
		if beaten[i] {
			continue
		}
		needs = p.needs(needs[:0])
		g, known := groups[string(needs)]
		if !known {
			g = len(sorted)
			groups[string(needs)] = g
			sorted = append(sorted, nil)
		}
		sorted[g] = append(sorted[g], p)
	}
	inParts(len(sorted), func(begin, end int) {
		for i := begin; i < end; i++ {
			sorted[i] = unbeaten(sorted[i])
		}
	})
	var kept []*partial
	ends := make([]int, 0, len(sorted))
	for _, group := range sorted {
		kept = append(kept, group...)
		ends = append(ends, len(kept))
	}
	for fine := int64(1 << 12); len(kept) > most && fine > 0; fine /= 2 {
		c.merged = true
		kept, ends = c.merge(kept, ends, fine)
	}
	return kept
}

// unbeaten returns the partial decisions of which none other is as good in everything.
func unbeaten(group []*partial) []*partial {
	slices.SortStableFunc(group, func(a, b *partial) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.saved, b.saved))
	})
	var kept []*partial
next:
	for _, p := range group {
		for _, k := range kept {
			if k.saved <= p.saved && noHigher(k.live, p.live) {
				k.take(p)
				continue next
			}
		}
		kept = append(kept, p)
	}
	return kept
}

func noHigher(a, b []int64) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// take merges q into p.
func (p *partial) take(q *partial) {
	p.least.saved, p.least.cost = min(p.least.saved, q.least.saved), min(p.least.cost, q.least.cost)
	for s := range p.least.live {
		p.least.live[s] = min(p.least.live[s], q.least.live[s])
	}
}

// merge makes one of the partial decisions of a group that fall into one cell of a grid
// of so many cells in cost, saved bytes and working peak. ends are those of the groups.
func (c *chooser) merge(states []*partial, ends []int, fine int64) ([]*partial, []int) {
	var cost, saved, work int64 = 1, 1, 1
	works := make([]int64, len(states))
	for i, p := range states {
		works[i] = c.work(p.live)
		cost, saved, work = max(cost, p.cost), max(saved, p.saved), max(work, works[i])
	}
	var kept []*partial
	var keptEnds []int
	begin := 0
	for _, end := range ends {
		cells := map[[3]int64]*partial{}
		for i := begin; i < end; i++ {
			p := states[i]
			cell := [3]int64{p.cost * fine / cost, p.saved / (saved/fine + 1), works[i] / (work/fine + 1)}
			if known := cells[cell]; known != nil {
				known.take(p)
				continue
			}
			cells[cell] = p
			kept = append(kept, p)
		}
		begin = end
		keptEnds = append(keptEnds, len(kept))
	}
	return kept, keptEnds
}
