package graph

import (
	"cmp"
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
		savedFirst, bySize, byArea, byLength,
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
