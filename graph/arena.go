package graph

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/lethe-go/lethe/device"
)

// place gives every storage an offset such that storages whose lives overlap do
// not, and returns the arena's size: the best of several first-fit orders. No
// arena can be smaller than the peak, so an order that reaches it ends the search.
//
// Storages with dynamic rows form a second segment behind the static ones, so
// that the static offsets do not depend on their bounds.
func place(storages []*Storage, peak int64) int64 {
	var static, dynamic []*Storage
	for _, st := range storages {
		if !st.workspace && st.Edge.Spec().Rows != 0 {
			dynamic = append(dynamic, st)
		} else {
			static = append(static, st)
		}
	}
	if len(dynamic) == 0 {
		return bestFit(static, peak, 0)
	}
	base := align(bestFit(static, 0, 0))
	return bestFit(dynamic, 0, base)
}

func align(n int64) int64 { return device.Align(n, device.Alignment) }

// bestFit tries the orders and keeps the offsets of the best one. It returns the
// end of the segment that begins at base.
func bestFit(storages []*Storage, peak, base int64) int64 {
	orders := []func(a, b *Storage) int{
		byLoad(storages), savedFirst, bySize, byArea, byLength,
	}
	best := int64(-1)
	offsets := make([]int64, len(storages))
	sorted := slices.Clone(storages)
	for _, order := range orders {
		slices.SortStableFunc(sorted, order)
		end := firstFit(sorted, base)
		if best < 0 || end < best {
			best = end
			for i, st := range storages {
				offsets[i] = st.Offset
			}
		}
		if best <= base+align(peak) {
			break
		}
	}
	for i, st := range storages {
		st.Offset = offsets[i]
	}
	return best
}

// byLoad begins with what lives when the most lives, the largest first: together it fills
// the arena without holes, and what lives at other times finds room beside it.
func byLoad(storages []*Storage) func(a, b *Storage) int {
	load := newLoad(storages)
	most := make(map[*Storage]int64, len(storages))
	for _, st := range storages {
		most[st] = load.most(st.Begin, st.End)
	}
	return func(a, b *Storage) int { return cmp.Or(cmp.Compare(most[b], most[a]), bySize(a, b)) }
}

// load has the bytes alive at each step, and in row r the most in 2^r steps from each on.
type load [][]int64

func newLoad(storages []*Storage) load {
	steps := 0
	for _, st := range storages {
		steps = max(steps, st.End+1)
	}
	alive := make([]int64, steps+1)
	for _, st := range storages {
		alive[st.Begin] += st.bytes
		alive[st.End+1] -= st.bytes
	}
	for i := 1; i <= steps; i++ {
		alive[i] += alive[i-1]
	}
	l := load{alive}
	for width := 1; 2*width <= steps; width *= 2 {
		below := l[len(l)-1]
		row := make([]int64, len(below)-width)
		for i := range row {
			row[i] = max(below[i], below[i+width])
		}
		l = append(l, row)
	}
	return l
}

// most is the maximum over the steps from begin to end, both included.
func (l load) most(begin, end int) int64 {
	row := bits.Len(uint(end-begin+1)) - 1
	return max(l[row][begin], l[row][end+1-(1<<row)])
}

// savedFirst stacks the saved storages from the bottom in the order of their
// birth: they die in nearly the reverse order, so the stack has no holes.
// Transients follow, the largest first.
func savedFirst(a, b *Storage) int {
	if a.Saved != b.Saved {
		if a.Saved {
			return -1
		}
		return 1
	}
	if a.Saved {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(b.End, a.End))
	}
	return bySize(a, b)
}

func bySize(a, b *Storage) int {
	return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.Begin, b.Begin))
}

func byLength(a, b *Storage) int {
	return cmp.Or(cmp.Compare(b.End-b.Begin, a.End-a.Begin), bySize(a, b))
}

func byArea(a, b *Storage) int {
	area := func(s *Storage) float64 { return float64(s.bytes) * float64(s.End-s.Begin+1) }
	return cmp.Or(cmp.Compare(area(b), area(a)), cmp.Compare(a.Begin, b.Begin))
}

// firstFit places storages in the given order, each in the smallest gap between
// those placed before it whose lives overlap its own.
func firstFit(order []*Storage, base int64) int64 {
	end := base
	placed := make([]*Storage, 0, len(order)) // by offset
	for _, st := range order {
		st.Offset = gap(placed, st, base)
		end = max(end, st.Offset+st.bytes)
		i, _ := slices.BinarySearchFunc(placed, st, func(a, b *Storage) int { return cmp.Compare(a.Offset, b.Offset) })
		placed = slices.Insert(placed, i, st)
	}
	return end
}

// gap finds the tightest hole for st, or the end of what is in its way.
func gap(placed []*Storage, st *Storage, base int64) int64 {
	best, bestSize, at := int64(-1), int64(0), base
	for _, p := range placed {
		if p.End < st.Begin || st.End < p.Begin {
			continue
		}
		if hole := p.Offset - at; hole >= st.bytes && (best < 0 || hole < bestSize) {
			best, bestSize = at, hole
		}
		at = max(at, align(p.Offset+p.bytes))
	}
	if best >= 0 {
		return best
	}
	return at
}
