package cpu

import "unsafe"

const (
	// attentionStrips bounds the strips of a tile: the lowest micro-kernel's are those.
	attentionStrips = attentionTile / gemmRowsGo
	// attentionColumns bounds the columns of a panel: the widest micro-kernel's.
	attentionColumns = 32
)

// tileSide is an operand of a product of tiles. As a its lanes are the rows, as b the
// columns, which are contiguous; steps run along the sum. Strides are in bytes. Lanes
// are read in whole strips or panels, and may be anything behind the last.
type tileSide struct {
	data       unsafe.Pointer
	lane, step int
	panel      int // of b, distance between panels
	// The only panel of b has half the columns: its rows lie side by side, and so do
	// those of the product.
	half bool
}

// turned exchanges lanes and steps.
func (s tileSide) turned() tileSide { return tileSide{data: s.data, lane: s.step, step: s.lane} }

// from begins at a lane of a.
func (s tileSide) from(lane int) tileSide {
	s.data = unsafe.Add(s.data, lane*s.lane)
	return s
}

// columnsFrom begins at a panel of b.
func (s tileSide) columnsFrom(panel int) tileSide {
	s.data = unsafe.Add(s.data, panel*s.panel)
	return s
}

// between is an interval.
type between struct{ from, to int }

func (b between) empty() bool { return b.from >= b.to }

// join is the smallest interval that holds both.
func (b between) join(from, to int) between {
	switch {
	case from >= to:
		return b
	case b.empty():
		return between{from, to}
	}
	return between{min(b.from, from), max(b.to, to)}
}

// tileProduct computes c = a·b, plus the old c when accumulate is set, with strips of
// rows of a and panels of columns of b, all of them whole. Rows of c are cRow bytes
// apart. Every element is summed for itself in the order of steps, gemmDepth at a time.
func tileProduct[T float](l level, strips, panels, steps int, a, b tileSide, c unsafe.Pointer, cRow int, accumulate bool) {
	rows, columns := panelTile[T](l, b.half)
	size := int(unsafe.Sizeof(*new(T)))
	if steps == 0 && !accumulate {
		for r := range strips * rows {
			clear(unsafe.Slice((*T)(unsafe.Add(c, r*cRow)), panels*columns))
		}
	}
	for p := 0; p < steps; p += gemmDepth {
		for j := range panels {
			tilePanel[T](l, strips, between{p, min(steps, p+gemmDepth)}, a, b.columnsFrom(j), unsafe.Add(c, j*columns*size), cRow, accumulate || p > 0)
		}
	}
}

// panelTile is the size of the micro-kernel's tile of c for a panel of b.
func panelTile[T float](l level, half bool) (rows, columns int) {
	rows, columns = gemmTileOf[T](l)
	if half {
		columns /= 2
	}
	return rows, columns
}

// tilePanel multiplies strips of a with one panel of b, over some steps, 1 to gemmDepth.
func tilePanel[T float](l level, strips int, steps between, a, b tileSide, c unsafe.Pointer, cRow int, accumulate bool) {
	rows, _ := gemmTileOf[T](l)
	depth := steps.to - steps.from
	from, panel := unsafe.Add(a.data, steps.from*a.step), unsafe.Add(b.data, steps.from*b.step)
	if !b.half {
		gemmPanel[T](l, strips, depth, from, rows*a.lane, a.lane, a.step, panel, b.step, b.panel, c, cRow, accumulate)
		return
	}
	for s := range strips {
		gemmNarrow[T](l, depth, unsafe.Add(from, s*rows*a.lane), a.lane, a.step, panel, unsafe.Add(c, s*rows*cRow), accumulate)
	}
}

// tileProductOf is tileProduct for strips that each take an interval of the steps, no
// longer than gemmDepth. A strip that takes none adds nothing.
func tileProductOf[T float](l level, takes []between, panels int, a, b tileSide, c unsafe.Pointer, cRow int, accumulate bool) {
	rows, columns := panelTile[T](l, b.half)
	size := int(unsafe.Sizeof(*new(T)))
	for j := range panels {
		for s, k := range takes {
			to := unsafe.Add(c, s*rows*cRow+j*columns*size)
			if !k.empty() {
				tilePanel[T](l, 1, k, a.from(s*rows), b.columnsFrom(j), to, cRow, accumulate)
			} else if !accumulate {
				for r := range rows {
					clear(unsafe.Slice((*T)(unsafe.Add(to, r*cRow)), columns))
				}
			}
		}
	}
}

// tileHalf reports whether rows of width elements lie in scratch as half a panel.
func tileHalf[T float](l level, width int) bool {
	_, columns := gemmTileOf[T](l)
	return width <= columns/2
}

// tileRow is the distance in elements between rows of a tile in scratch: half a panel, or
// whole panels and an odd number of cache lines, so that a panel's rows do not compete for
// a few sets of the first-level cache.
func tileRow[T float](l level, width int) int {
	_, columns := gemmTileOf[T](l)
	if tileHalf[T](l, width) {
		return columns / 2
	}
	line := 64 / int(unsafe.Sizeof(*new(T)))
	row := roundUp(max(width, 1), max(columns, line))
	if row/line%2 == 0 {
		row += line
	}
	return row
}

// packLanes packs panels of lanes, of width elements lane elements apart, at lane
// first: step by step, the lanes of a step side by side. dst has panels of all steps.
func packLanes[T float](l level, dst unsafe.Pointer, first int, src unsafe.Pointer, lane, lanes, width int) {
	_, columns := gemmTileOf[T](l)
	size := int(unsafe.Sizeof(*new(T)))
	for i := 0; i < lanes; {
		at := first + i
		to, from := unsafe.Add(dst, (at/columns*columns*width+at%columns)*size), unsafe.Add(src, i*lane*size)
		n, done := gemmTranspose[T](l, min(lanes-i, columns-at%columns), width, to, columns*size, from, lane*size)
		packElements[T](n, done, width, to, columns*size, from, lane*size, size)
		i += n
	}
}

// clearLanes zeroes packed lanes from first to the end of their panel.
func clearLanes[T float](l level, dst unsafe.Pointer, first, width int) {
	_, columns := gemmTileOf[T](l)
	if first%columns == 0 {
		return
	}
	for q := range width {
		clear(slice[T](dst, first/columns*columns*width+q*columns+first%columns, columns-first%columns))
	}
}
