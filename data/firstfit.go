package data

import (
	"context"
	"io"
)

// openRows is how many rows first-fit chooses from, and so how far it looks ahead.
const openRows = 128

// firstFit packs block after block. A block is openRows rows at most: each piece of
// the stream goes into the first of them that has room, and the first piece that fits
// nowhere begins the next block. A block depends on nothing but the place in the
// stream where it begins, so a position is that place and a number of rows; going there
// packs one block again.
type firstFit struct {
	stream  *stream
	seqLen  int
	padding int32

	start  place // of the block
	block  Batch // openRows rows, of which the first few may be used
	used   []int // tokens in each row
	counts []count
	packed bool // whether the block is
	next   int  // row
}

func (f *firstFit) moveTo(p *position) {
	f.stream.moveTo(&p.place)
	f.start.copyFrom(&p.place)
	f.packed, f.next = false, p.row
}

func (f *firstFit) position(p *position) {
	p.copyFrom(&f.start)
	p.row = f.next
}

func (f *firstFit) ready(ctx context.Context) error {
	if f.packed {
		return nil
	}
	if err := f.pack(ctx); err != nil {
		return err
	}
	if f.next >= len(f.used) {
		return f.stream.errorf("%w: row %d of a block of %d", ErrState, f.next, len(f.used))
	}
	f.packed = true
	return nil
}

func (f *firstFit) fill(ctx context.Context, r row) (count, error) {
	err := f.ready(ctx)
	if err == io.EOF {
		return count{padding: r.pad(0, f.padding)}, nil
	}
	if err != nil {
		return count{}, err
	}
	from, n := f.block.row(f.next), f.counts[f.next]
	copy(r.tokens, from.tokens)
	copy(r.labels, from.labels)
	copy(r.positions, from.positions)
	copy(r.start, from.start)
	f.take(1)
	return n, nil
}

func (f *firstFit) skip(ctx context.Context, rows int) error {
	for rows > 0 {
		err := f.ready(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		n := min(rows, len(f.used)-f.next)
		f.take(n)
		rows -= n
	}
	return nil
}

// take leaves rows of the block behind. The end of a block is always written as the
// start of the next.
func (f *firstFit) take(rows int) {
	if f.next += rows; f.next == len(f.used) {
		f.start.copyFrom(&f.stream.at)
		f.packed, f.next = false, 0
	}
}

// pack fills the block that begins where the stream stands.
func (f *firstFit) pack(ctx context.Context) error {
	f.block.shape(openRows, f.seqLen)
	f.used, f.counts = f.used[:0], f.counts[:0]
	for {
		err := f.stream.load(ctx)
		if err == io.EOF && len(f.used) > 0 {
			break
		}
		if err != nil {
			return err
		}
		piece := f.stream.rest()
		n := min(len(piece), f.seqLen)
		i := f.fit(n)
		if i == openRows {
			break
		}
		f.counts[i].valid += f.block.row(i).put(f.used[i], n, piece)
		f.used[i] += n
		f.stream.advance(n)
	}
	for i, used := range f.used {
		f.counts[i].padding = f.block.row(i).pad(used, f.padding)
	}
	return nil
}

// fit returns the first row that has room for n tokens, a new one if none has, or
// openRows.
func (f *firstFit) fit(n int) int {
	for i, used := range f.used {
		if used+n <= f.seqLen {
			return i
		}
	}
	if len(f.used) < openRows {
		f.used, f.counts = append(f.used, 0), append(f.counts, count{})
		return len(f.used) - 1
	}
	return openRows
}
