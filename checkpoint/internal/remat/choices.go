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
	// firstPartials are kept of the partial decisions that do not beat each other while
	// the first decisions are found, maxPartials while they are improved.
	firstPartials, maxPartials = 300, 3000
)

// choose finds the layer's menu. Where not every decision is looked at, it first finds
// some that are good, with which most partial ones cannot keep up.
func (l *layer) choose() menu {
	c := &chooser{layer: l, spans: l.spans()}
	if len(l.ops) <= exactOps {
		c.search(math.MaxInt)
		m := menu{choices: c.found}
		for _, q := range m.choices {
			m.bounds = append(m.bounds, q.offer)
		}
		return m
	}
	c.search(firstPartials)
	return menu{bounds: c.search(maxPartials), choices: c.found}
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

// decide appends what may become of p when op i is decided about.
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
	q := p.clone()
	at := (need - 1) | 1 // an odd half point: before a step
	if need%2 == 1 {
		at = need
	}
	q.rerun |= 1 << i
	q.pay(op.cost)
	for _, v := range op.out {
		if p.last[v] >= 0 {
			c.lives(q, v, int(at+1)/2, p.last[v])
		}
	}
	for _, v := range op.in {
		if c.values[v].producer < 0 {
			c.extend(q, v, at)
			continue
		}
		q.first[v], q.last[v] = min(q.first[v], at), max(q.last[v], at)
	}
	return append(to, c.forget(q, op))
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
		start = int(p.last[v])/2 + 1
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

// needs identifies what a partial decision needs of the ops before.
func (p *partial) needs() string {
	var b []byte
	for v := range p.first {
		b = binary.AppendVarint(b, int64(p.first[v]))
		b = binary.AppendVarint(b, int64(p.last[v]))
	}
	return string(b)
}

// prune drops what others beat, and merges what is similar until little enough is
// left.
func (c *chooser) prune(states []*partial, most int) []*partial {
	states = slices.DeleteFunc(states, c.beaten)
	groups := map[string]int{}
	var sorted [][]*partial
	for _, p := range states {
		key := p.needs()
		g, known := groups[key]
		if !known {
			g = len(sorted)
			groups[key] = g
			sorted = append(sorted, nil)
		}
		sorted[g] = append(sorted[g], p)
	}
	var kept []*partial
	ends := make([]int, 0, len(sorted))
	for _, group := range sorted {
		kept = append(kept, c.unbeaten(group)...)
		ends = append(ends, len(kept))
	}
	for fine := int64(1 << 12); len(kept) > most && fine > 0; fine /= 2 {
		kept, ends = c.merge(kept, ends, fine)
	}
	return kept
}

// unbeaten returns the partial decisions of which none other is as good in everything.
func (c *chooser) unbeaten(group []*partial) []*partial {
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
