package graph

import (
	"cmp"
	"slices"

	"github.com/lethe-go/lethe/device"
)

// place gives every storage an offset such that storages whose lives overlap do
// not, and returns the arena's size. Scratch variables have theirs, at the beginning of the
// arena; values are stacked from its end, towards what is born when they are dead.
//
// Storages with dynamic rows form a second segment behind the static ones, so
// that the static offsets do not depend on their bounds.
func place(storages []*Storage) int64 {
	var static, scratch, dynamic []*Storage
	for _, st := range storages {
		switch {
		case st.variable != nil:
			st.Offset = st.variable.place
			scratch = append(scratch, st)
		case !st.workspace && st.Edge.Spec().Rows != 0:
			dynamic = append(dynamic, st)
		default:
			static = append(static, st)
		}
	}
	base := stack(static, scratch)
	end := base + stack(dynamic, nil)
	for _, st := range dynamic {
		st.Offset += base
	}
	return end
}

func align(n int64) int64 { return device.Align(n, device.Alignment) }

// stack places storages around scratch and returns the size of both. No size can be smaller
// than the peak, so that is what it tries first, and then a little more. What finds no room is
// placed earlier in the next try: in one order before all else, in the other a little earlier.
func stack(storages, scratch []*Storage) int64 {
	size := align(mostAlive(slices.Concat(storages, scratch)))
	for _, st := range scratch {
		size = max(size, align(st.Offset+st.bytes))
	}
	orders := [][]*Storage{slices.Clone(storages), slices.Clone(storages)}
	slices.SortStableFunc(orders[0], savedFirst)
	slices.SortStableFunc(orders[1], longestFirst)
	parts := []int{1, 4}
	const tries, steps = 64, 512
	for try := 0; ; try++ {
		i := try % len(orders)
		if firstFit(orders[i], fromEnd(scratch, size)) <= size {
			break
		}
		promote(orders[i], size, parts[i])
		if try%tries == tries-1 {
			size += align(size/steps + 1)
		}
	}
	for _, st := range storages {
		st.Offset = size - st.Offset - align(st.bytes)
	}
	return size
}

// mostAlive is the most bytes alive at one step.
func mostAlive(storages []*Storage) int64 {
	steps := 0
	for _, st := range storages {
		steps = max(steps, st.End+1)
	}
	change := make([]int64, steps+1)
	for _, st := range storages {
		change[st.Begin] += st.bytes
		change[st.End+1] -= st.bytes
	}
	var alive, most int64
	for _, d := range change {
		alive += d
		most = max(most, alive)
	}
	return most
}

// savedFirst stacks the saved storages in the order of their birth: they die in nearly the
// reverse order, so the stack has no holes. Transients follow, the largest first.
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
	return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.Begin, b.Begin))
}

// longestFirst begins with what lives longest, and so is least free to move.
func longestFirst(a, b *Storage) int {
	return cmp.Or(cmp.Compare(b.End-b.Begin, a.End-a.Begin), cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.Begin, b.Begin))
}

// promote moves what reaches beyond a size towards the front of the order, by a part of the way.
func promote(order []*Storage, size int64, part int) {
	for i, st := range order {
		if st.Offset+st.bytes > size {
			to := i - (i+part-1)/part
			copy(order[to+1:i+1], order[to:i])
			order[to] = st
		}
	}
}

// fromEnd are blocks with the lives of scratch at their distances from the end of an arena, in
// that order.
func fromEnd(scratch []*Storage, size int64) []*Storage {
	var blocks []*Storage
	for _, st := range slices.Backward(scratch) {
		blocks = append(blocks, &Storage{Begin: st.Begin, End: st.End, bytes: st.bytes, Offset: size - st.Offset - align(st.bytes)})
	}
	return blocks
}

// firstFit places storages in the given order, each in the first gap between those placed
// before it, or fixed, whose lives overlap its own. It returns their end.
func firstFit(order, fixed []*Storage) int64 {
	var end int64
	placed := make([]*Storage, len(fixed), len(order)+len(fixed)) // by offset
	copy(placed, fixed)
	for _, st := range order {
		st.Offset = gap(placed, st)
		end = max(end, st.Offset+st.bytes)
		i, _ := slices.BinarySearchFunc(placed, st, func(a, b *Storage) int { return cmp.Compare(a.Offset, b.Offset) })
		placed = slices.Insert(placed, i, st)
	}
	return end
}

// gap finds the first hole for st, or the end of what is in its way.
func gap(placed []*Storage, st *Storage) int64 {
	at := int64(0)
	for _, p := range placed {
		if p.End < st.Begin || st.End < p.Begin {
			continue
		}
		if p.Offset-at >= st.bytes {
			break
		}
		at = max(at, align(p.Offset+p.bytes))
	}
	return at
}
