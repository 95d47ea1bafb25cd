package cpu

import "unsafe"

// gemmSide is one operand seen by the micro-kernel, the same for both: lanes are
// the rows of a or the columns of b, steps run along k, and a panel is as many
// lanes as the tile of the micro-kernel has. Strides are in elements.
//
// A packed panel lies step by step, the lanes of a step side by side. The last
// panel overlaps the one before rather than reach beyond the operand; an operand
// narrower than a panel is padded with zeros.
type gemmSide[T float] struct {
	data       unsafe.Pointer
	lane, step int
	lanes      int
	width      int // lanes of a panel
	packed     unsafe.Pointer

	// The part of the operand that is packed now: the lanes [first, last) of the
	// steps [start, stop). stale asks for packing.
	first, last, start, stop int
	stale                    bool
}

// gemmDepth is how many steps of k one call of the micro-kernel runs through, and
// so part of the order of summation. A panel of b of that depth fills half of the
// first-level cache, which it stays in for all strips of a.
const gemmDepth = 256

// gemmPackPanels is how many panels one task packs: enough for whole pages of an
// operand whose lanes are contiguous.
const gemmPackPanels = 8

func (s *gemmSide[T]) inPlace() bool { return s.packed == nil }

// panels is the number of panels in the packed part.
func (s *gemmSide[T]) panels() int { return ceilDiv(s.last-s.first, s.width) }

// origin is the first lane of the panel that holds lane i.
func (s *gemmSide[T]) origin(i int) int { return max(0, min(i, s.lanes-s.width)) }

// at is the address of an element of the operand.
func (s *gemmSide[T]) at(lane, step int) unsafe.Pointer {
	return unsafe.Add(s.data, (lane*s.lane+step*s.step)*int(unsafe.Sizeof(*new(T))))
}

// panel is the address of the panel of lane i from step p on, for depth steps,
// and the distances in bytes to the next panel, lane and step.
func (s *gemmSide[T]) panel(i, p, depth int) (address unsafe.Pointer, next, lane, step int) {
	size := int(unsafe.Sizeof(*new(T)))
	if s.inPlace() {
		return s.at(s.origin(i), p), s.width * s.lane * size, s.lane * size, s.step * size
	}
	before := (p-s.start)*s.panels() + (i-s.first)/s.width*depth
	return unsafe.Add(s.packed, before*s.width*size), depth * s.width * size, size, s.width * size
}

// packTasks is the number of tasks that pack the part, 0 when it needs none.
func (s *gemmSide[T]) packTasks() int {
	if s.inPlace() || !s.stale {
		return 0
	}
	return ceilDiv(s.panels(), gemmPackPanels) * ceilDiv(s.stop-s.start, gemmDepth)
}

// pack runs one task.
func (s *gemmSide[T]) pack(l level, task int) {
	groups := ceilDiv(s.panels(), gemmPackPanels)
	p := s.start + task/groups*gemmDepth
	depth := min(gemmDepth, s.stop-p)
	i := s.first + task%groups*gemmPackPanels*s.width
	last := min(s.last, i+gemmPackPanels*s.width)
	switch {
	case s.lanes < s.width:
		s.packPadded(p, depth)
	case s.lane == 1:
		s.packCopy(l, i, last, p, depth)
	default:
		for ; i < last; i += s.width {
			s.packTransposed(l, i, p, depth)
		}
	}
}

// packPadded packs an operand of less than a panel.
func (s *gemmSide[T]) packPadded(p, depth int) {
	out, _, _, step := s.panel(0, p, depth)
	for q := range depth {
		row := unsafe.Slice((*T)(unsafe.Add(out, q*step)), s.width)
		for i := range s.lanes {
			row[i] = *(*T)(s.at(i, p+q))
		}
		clear(row[s.lanes:])
	}
}

// packCopy packs the panels of lanes [i, last) where lanes are contiguous: it
// reads steps as a whole and deals them out to the panels.
func (s *gemmSide[T]) packCopy(l level, i, last, p, depth int) {
	size := int(unsafe.Sizeof(*new(T)))
	if whole := (last - i) / s.width; whole > 0 {
		out, next, _, step := s.panel(i, p, depth)
		gemmDealPanels[T](l, depth, whole, s.width, out, next, step, s.at(i, p), s.step*size)
		i += whole * s.width
	}
	if i < last {
		out, next, _, step := s.panel(i, p, depth)
		gemmDealPanels[T](l, depth, 1, s.width, out, next, step, s.at(s.origin(i), p), s.step*size)
	}
}

// gemmDealPanelsGo copies, for each step, the lanes of consecutive panels. Strides
// are in bytes.
func gemmDealPanelsGo[T float](steps, panels, width int, dst unsafe.Pointer, dstNext, dstStep int, src unsafe.Pointer, srcStep int) {
	size := int(unsafe.Sizeof(*new(T)))
	for step := range steps {
		for panel := range panels {
			to := unsafe.Slice((*T)(unsafe.Add(dst, step*dstStep+panel*dstNext)), width)
			from := unsafe.Slice((*T)(unsafe.Add(src, step*srcStep+panel*width*size)), width)
			for lane := range to {
				to[lane] = from[lane]
			}
		}
	}
}

// packTransposed packs the panel of lane i with any strides.
func (s *gemmSide[T]) packTransposed(l level, i, p, depth int) {
	size := int(unsafe.Sizeof(*new(T)))
	out, _, _, step := s.panel(i, p, depth)
	i = s.origin(i)
	for lane := 0; lane < s.width; {
		lane = max(0, min(lane, s.width-4)) // the last four overlap others
		to, from := unsafe.Add(out, lane*size), s.at(i+lane, p)
		n, done := s.width-lane, 0
		if s.step == 1 {
			n, done = gemmTranspose[T](l, n, depth, to, step, from, s.lane*size)
		}
		packElements[T](n, done, depth, to, step, from, s.lane*size, s.step*size)
		lane += n
	}
}

// packElements packs the steps [from, depth) of lanes. Strides are in bytes.
func packElements[T float](lanes, from, depth int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane, srcStep int) {
	size := int(unsafe.Sizeof(*new(T)))
	for lane := range lanes {
		for q := from; q < depth; q++ {
			*(*T)(unsafe.Add(dst, q*dstStep+lane*size)) = *(*T)(unsafe.Add(src, lane*srcLane+q*srcStep))
		}
	}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
