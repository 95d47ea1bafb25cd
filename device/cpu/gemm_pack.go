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
		s.packCopy(i, last, p, depth)
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
func (s *gemmSide[T]) packCopy(i, last, p, depth int) {
	switch s.width {
	case 4:
		packCopyOf[[4]T](s, i, last, p, depth)
	case 6:
		packCopyOf[[6]T](s, i, last, p, depth)
	case 12:
		packCopyOf[[12]T](s, i, last, p, depth)
	case 16:
		packCopyOf[[16]T](s, i, last, p, depth)
	case 32:
		packCopyOf[[32]T](s, i, last, p, depth)
	default:
		panic("cpu: no such panel")
	}
}

// packCopyOf has the lanes of a panel as one type: the copy is a few moves.
func packCopyOf[Panel any, T float](s *gemmSide[T], i, last, p, depth int) {
	width, size := s.width, int(unsafe.Sizeof(*new(T)))
	out, next, _, step := s.panel(i, p, depth)
	whole := (last - i) / width
	for q := range depth {
		from, to := s.at(i, p+q), unsafe.Add(out, q*step)
		for x := range whole {
			*(*Panel)(unsafe.Add(to, x*next)) = *(*Panel)(unsafe.Add(from, x*width*size))
		}
		if i+whole*width < last {
			*(*Panel)(unsafe.Add(to, whole*next)) = *(*Panel)(s.at(s.lanes-width, p+q))
		}
	}
}

// packTransposed packs the panel of lane i with any strides; contiguous steps go
// four lanes at a time, the last four overlapping others.
func (s *gemmSide[T]) packTransposed(l level, i, p, depth int) {
	size := int(unsafe.Sizeof(*new(T)))
	out, _, _, step := s.panel(i, p, depth)
	i = s.origin(i)
	done := 0
	if s.step == 1 {
		for lane := 0; lane < s.width; lane += 4 {
			lane := min(lane, s.width-4)
			done = gemmTranspose[T](l, depth, unsafe.Add(out, lane*size), step, s.at(i+lane, p), s.lane*size)
		}
	}
	for lane := range s.width {
		for q := done; q < depth; q++ {
			*(*T)(unsafe.Add(out, q*step+lane*size)) = *(*T)(s.at(i+lane, p+q))
		}
	}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
