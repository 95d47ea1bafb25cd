package remat

import (
	"cmp"
	"math/bits"
	"slices"
)

// beaten reports whether, whatever is decided about the other ops, a decision that was
// found is as good as what becomes of p. An op of which p needs a value will be saved
// or rerun: as if parts of it could be, the least cost for a number of saved bytes is
// that of saving first where it spares the most (Dantzig 1957).
func (c *chooser) beaten(p *partial) bool {
	work := c.least(p)
	open := c.pending(p)
	saved, cost := p.least.saved, p.least.cost
	for _, o := range open {
		cost += o.cost
	}
	// From few saved bytes to many: the found decisions must lie on or below the
	// curve all along, and begin where it does.
	lowest, any := int64(0), false
	for _, q := range c.saved {
		if q.work > work {
			continue
		}
		if q.saved > saved {
			// Just before this one helps, the curve is at its lowest.
			if at := costAt(open, cost, q.saved-1-saved); !any || lowest > at {
				return false
			}
		}
		if !any || q.cost < lowest {
			lowest, any = q.cost, true
		}
	}
	for _, o := range open {
		cost -= o.cost
	}
	return any && lowest <= cost
}

// least is the lowest working peak of what may become of p.
func (c *chooser) least(p *partial) int64 {
	var most int64
	for s, span := range c.spans {
		bytes, at := span.bytes+p.least.live[s], int32(2*span.point)
		for v := range c.values {
			if p.first[v] <= at && at <= p.last[v] {
				bytes += c.values[v].size
			}
		}
		most = max(most, bytes)
	}
	return most
}

// pending are the ops that p leaves open and needs, the best to save first: what saving
// one takes, and what it spares.
func (c *chooser) pending(p *partial) []offer {
	var open []offer
	for i := range c.ops {
		o := offer{cost: c.ops[i].cost}
		needed := false
		for _, v := range c.ops[i].out {
			if p.first[v] != never {
				o.saved, needed = o.saved+c.values[v].size, true
			}
		}
		if needed && !c.ops[i].again {
			open = append(open, o)
		}
	}
	slices.SortFunc(open, func(a, b offer) int {
		hi1, lo1 := bits.Mul64(uint64(a.cost), uint64(b.saved))
		hi2, lo2 := bits.Mul64(uint64(b.cost), uint64(a.saved))
		return cmp.Or(-cmp.Compare(hi1, hi2), -cmp.Compare(lo1, lo2))
	})
	return open
}

// costAt is what is left of a cost when bytes are spent on saving, rounded down.
func costAt(open []offer, cost, bytes int64) int64 {
	for _, o := range open {
		if o.saved > bytes {
			hi, lo := bits.Mul64(uint64(o.cost), uint64(bytes))
			spared, rest := bits.Div64(hi, lo, uint64(o.saved))
			if rest > 0 {
				spared++
			}
			return cost - int64(spared)
		}
		cost, bytes = cost-o.cost, bytes-o.saved
	}
	return cost
}

// lookAtFound sorts the decisions that were found for beaten, those that save least first.
func (c *chooser) lookAtFound() {
	if c.saved != nil {
		return
	}
	for _, q := range c.found {
		c.saved = append(c.saved, q.offer)
	}
	slices.SortStableFunc(c.saved, func(a, b offer) int { return cmp.Compare(a.saved, b.saved) })
}
