package remat

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Front are the plans of a Schedule that no other beats in both peak and cost, found
// layer by layer (see layer). It is exact where the menus of all layers are, and no
// list became too long; Bound says how far off it may be.
type Front struct {
	schedule *Schedule
	layers   []*layer
	menus    []menu       // by layer
	best     [][]position // by layer: the plans for it and the layers above
	// What no plan undercuts, in two ways: thinned lists of bounds, and convex hulls.
	thinned, hull []position
}

// position is what a plan for a layer and all above it needs: the peak, without
// what the layers below save, and the cost.
type position struct {
	peak, cost   int64
	choice, next int32
}

// Front finds the best plans, or reports false where the schedule does not divide
// into layers small enough.
func (s *Schedule) Front() (*Front, bool) {
	f := &Front{schedule: s}
	var top int64
	var ok bool
	if f.layers, top, ok = s.layers(); !ok {
		return nil, false
	}
	if slices.ContainsFunc(f.layers, func(l *layer) bool { return len(l.ops) > maxOps }) {
		return nil, false
	}
	if f.menus = menus(f.layers); slices.ContainsFunc(f.menus, func(m menu) bool { return len(m.choices) == 0 }) {
		return nil, false
	}
	f.lift(top)
	f.stack(top)
	return f, true
}

const (
	// composed is how many pairs of a layer's choice and a plan for the layers above
	// are looked at.
	composed = 40_000_000
	// leastPositions are kept in a list at least, and mostPositions of whole plans.
	leastPositions, mostPositions = 256, 100_000
)

// lift drops choices that only differ in working peaks so low that they do not matter: not
// above what is sure to live in a layer or one above it, beside what the layers below save.
func (f *Front) lift(top int64) {
	sure := top
	for i := len(f.layers) - 1; i >= 0; i-- {
		offset, m := f.layers[i].offset, &f.menus[i]
		saved, work := int64(math.MaxInt64), int64(math.MaxInt64)
		for _, o := range m.bounds {
			saved, work = min(saved, o.saved), min(work, o.work)
		}
		sure = max(saved+sure, offset+work)
		lifted := menu{choices: slices.Clone(m.choices), bounds: slices.Clone(m.bounds)}
		for j := range lifted.choices {
			lifted.choices[j].work = max(lifted.choices[j].work, sure-offset)
		}
		for j := range lifted.bounds {
			lifted.bounds[j].work = max(lifted.bounds[j].work, sure-offset)
		}
		m.choices = undominated(lifted.choices, func(q choice) offer { return q.offer })
		m.bounds = undominated(lifted.bounds, func(o offer) offer { return o })
	}
}

// stack combines the menus from the last layer to the first.
func (f *Front) stack(top int64) {
	f.best = make([][]position, len(f.layers)+1)
	list := []position{{peak: top, next: -1, choice: -1}}
	f.best[len(f.layers)], f.thinned, f.hull = list, list, list
	each := func(add func(i int, offset int64, m menu)) func() {
		return func() {
			for i := len(f.layers) - 1; i >= 0; i-- {
				add(i, f.layers[i].offset, f.menus[i])
			}
		}
	}
	sideBySide(
		each(func(i int, offset int64, m menu) {
			offers := make([]offer, len(m.choices))
			for j, c := range m.choices {
				offers[j] = c.offer
			}
			f.best[i] = thin(compose(f.best[i+1], offers, offset), f.positions(i), false)
		}),
		each(func(i int, offset int64, m menu) {
			f.thinned = thin(compose(f.thinned, m.bounds, offset), f.positions(i), true)
		}),
		each(func(_ int, offset int64, m menu) {
			f.hull = lowerHull(composeHull(f.hull, m.bounds, offset))
		}))
}

// positions is how many to keep of the plans for a layer and those above, so that composing
// them with the layer below is no more than its part of the work.
func (f *Front) positions(i int) int {
	if i == 0 {
		return mostPositions
	}
	below := f.menus[i-1]
	return max(composed/len(f.layers)/max(len(below.choices), len(below.bounds)), leastPositions)
}

// compose puts a layer with some offers below the plans in a list. It returns what
// no other beats, the smallest peak first.
func compose(above []position, offers []offer, offset int64) []position {
	lo, hi := int64(math.MaxInt64), int64(0)
	for _, o := range offers {
		lo = min(lo, max(offset+o.work, o.saved+above[0].peak))
		hi = max(hi, offset+o.work, o.saved+above[len(above)-1].peak)
	}
	// First the least cost by ranges of peaks, so that most of what others beat is
	// never sorted.
	const ranges = 1 << 15
	shift := bits.Len64(uint64((hi - lo) / ranges))
	least := slices.Repeat([]int64{math.MaxInt64}, ranges+2) // in the ranges before
	for _, o := range offers {
		own := offset + o.work
		for k := range above {
			r := (max(own, o.saved+above[k].peak)-lo)>>shift + 1
			least[r] = min(least[r], o.cost+above[k].cost)
		}
	}
	for r := 1; r < len(least); r++ {
		least[r] = min(least[r], least[r-1])
	}
	var list []position
	for j, o := range offers {
		own := offset + o.work
		for k := range above {
			peak, cost := max(own, o.saved+above[k].peak), o.cost+above[k].cost
			if cost < least[(peak-lo)>>shift] {
				list = append(list, position{peak, cost, int32(j), int32(k)})
			}
		}
	}
	ends := inRanges(list, lo, shift, ranges+1)
	begin := 0
	for _, end := range ends {
		slices.SortFunc(list[begin:end], comparePositions)
		begin = end
	}
	return unbeatenPositions(list)
}

// inRanges puts positions in the order of the ranges of their peaks, and returns the ends of
// the ranges.
func inRanges(list []position, lo int64, shift, ranges int) (ends []int) {
	ends = make([]int, ranges)
	for _, p := range list {
		ends[(p.peak-lo)>>shift]++
	}
	sum := 0
	for r, n := range ends { // what are ends afterwards are the next places first
		ends[r], sum = sum, sum+n
	}
	for _, p := range slices.Clone(list) {
		r := (p.peak - lo) >> shift
		list[ends[r]] = p
		ends[r]++
	}
	return ends
}

func comparePositions(a, b position) int {
	if a.peak != b.peak {
		return cmp.Compare(a.peak, b.peak)
	}
	return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.choice, b.choice), cmp.Compare(a.next, b.next))
}

// unbeatenPositions drops what is no cheaper than what comes before in a sorted list.
func unbeatenPositions(list []position) []position {
	kept := list[:0]
	for _, p := range list {
		if len(kept) == 0 || p.cost < kept[len(kept)-1].cost {
			kept = append(kept, p)
		}
	}
	return kept
}

// composeHull is compose for what lies on the lines between the corners of a hull: where
// a line is cut off by the layer's own peak, a corner is new.
func composeHull(above []position, offers []offer, offset int64) []position {
	list := compose(above, offers, offset)
	for j, o := range offers {
		if cost, ok := onHull(above, offset+o.work-o.saved); ok {
			list = append(list, position{peak: offset + o.work, cost: o.cost + cost, choice: int32(j)})
		}
	}
	slices.SortFunc(list, comparePositions)
	return unbeatenPositions(list)
}

// thin keeps at most so many positions. As bounds, each kept one is as good as all
// that it stands for.
func thin(list []position, most int, bounds bool) []position {
	if len(list) <= most {
		return list
	}
	kept := make([]position, 0, most)
	for i := range most {
		from, to := i*len(list)/most, (i+1)*len(list)/most
		p := list[from]
		if i == most-1 {
			p = list[to-1]
		}
		if bounds {
			p = position{peak: list[from].peak, cost: list[to-1].cost}
		}
		kept = append(kept, p)
	}
	return kept
}

// lowerHull keeps the corners of the lower convex hull.
func lowerHull(list []position) []position {
	var hull []position
	for _, p := range list {
		for len(hull) >= 2 && !above(hull[len(hull)-2], hull[len(hull)-1], p) {
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, p)
	}
	return hull
}

// above reports whether the line from a to c passes above b.
func above(a, b, c position) bool {
	hi1, lo1 := bits.Mul64(uint64(a.cost-b.cost), uint64(c.peak-a.peak))
	hi2, lo2 := bits.Mul64(uint64(a.cost-c.cost), uint64(b.peak-a.peak))
	return hi1 > hi2 || hi1 == hi2 && lo1 > lo2
}

// Len is the number of plans.
func (f *Front) Len() int { return len(f.best[0]) }

// At gives plan i: the smallest peak is first, the lowest cost last.
func (f *Front) At(i int) (rerun []bool, peak, cost int64) {
	p := f.best[0][i]
	rerun = make([]bool, len(f.schedule.Ops))
	for l, at := 0, p; l < len(f.layers); l++ {
		for j, op := range f.layers[l].ops {
			if f.menus[l].choices[at.choice].rerun>>j&1 == 1 {
				rerun[op.op] = true
			}
		}
		at = f.best[l+1][at.next]
	}
	return rerun, p.peak, p.cost
}

// Find is the index of the cheapest plan within a peak, -1 if there is none.
func (f *Front) Find(peak int64) int { return find(f.best[0], peak) }

// find is the index of the last position within a peak, -1 if there is none.
func find(list []position, peak int64) int {
	i, _ := slices.BinarySearchFunc(list, peak, func(p position, most int64) int {
		if p.peak <= most {
			return -1
		}
		return 1
	})
	return i - 1
}

// Bound is undercut by no plan within a peak. It reports false if none is.
func (f *Front) Bound(peak int64) (cost int64, ok bool) {
	i := find(f.thinned, peak)
	if cost, ok = onHull(f.hull, peak); !ok || i < 0 {
		return 0, false
	}
	return max(cost, f.thinned[i].cost), true
}

// onHull is the cost at a peak on the line between the corners of a hull, rounded up. It
// reports false to the left of the first.
func onHull(hull []position, peak int64) (int64, bool) {
	j := find(hull, peak)
	if j < 0 {
		return 0, false
	}
	p := hull[j]
	if j+1 == len(hull) {
		return p.cost, true
	}
	q := hull[j+1]
	hi, lo := bits.Mul64(uint64(p.cost-q.cost), uint64(peak-p.peak))
	down, _ := bits.Div64(hi, lo, uint64(q.peak-p.peak))
	return p.cost - int64(down), true
}
