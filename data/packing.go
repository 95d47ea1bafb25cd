package data

import (
	"context"
	"fmt"
	"io"
)

// Packing says how documents are put into rows.
type Packing string

const (
	// Concatenate joins all documents and cuts the whole into rows: there is no
	// padding, and a document may be cut anywhere. The zero value means this too.
	Concatenate Packing = "concatenate"

	// FirstFit puts a document that fits a row into one row, uncut, and pads what is
	// left of rows. Longer documents are cut into rows and a rest.
	FirstFit Packing = "first_fit"
)

// packer makes the sequence of rows that all ranks share.
type packer interface {
	// ready returns io.EOF if there is no further row.
	ready(ctx context.Context) error
	// fill makes the next row, of padding alone if there is none.
	fill(ctx context.Context, r row) (count, error)
	// skip passes over rows of other ranks.
	skip(ctx context.Context, rows int) error
	// position copies where the packer stands.
	position(p *position)
	// moveTo goes to a position.
	moveTo(p *position)
}

// count is what a row holds.
type count struct{ valid, padding int }

// position is where the next row begins: a place in the stream, and for FirstFit the
// rows after it that are done.
type position struct {
	place
	row int
}

func newPacker(s *stream, o Options) (packer, error) {
	padding := max(0, s.tokenizer.EOS())
	switch o.Packing {
	case "", Concatenate:
		return &concatenation{s, o.SeqLen, padding}, nil
	case FirstFit:
		return &firstFit{stream: s, seqLen: o.SeqLen, padding: padding}, nil
	}
	return nil, fmt.Errorf("unknown packing %q: known are %q and %q", o.Packing, Concatenate, FirstFit)
}

// concatenation cuts the stream every seqLen tokens.
type concatenation struct {
	stream  *stream
	seqLen  int
	padding int32
}

func (c *concatenation) ready(ctx context.Context) error { return c.stream.load(ctx) }
func (c *concatenation) moveTo(p *position)              { c.stream.moveTo(&p.place) }

func (c *concatenation) position(p *position) {
	p.copyFrom(&c.stream.at)
	p.row = 0
}

func (c *concatenation) fill(ctx context.Context, r row) (n count, err error) {
	for column := 0; column < c.seqLen; {
		err := c.stream.load(ctx)
		if err == io.EOF {
			n.padding = r.pad(column, c.padding)
			break
		}
		if err != nil {
			return n, err
		}
		piece := c.stream.rest()
		taken := min(len(piece), c.seqLen-column)
		n.valid += r.put(column, taken, piece)
		c.stream.advance(taken)
		column += taken
	}
	return n, nil
}

func (c *concatenation) skip(ctx context.Context, rows int) error {
	for tokens := rows * c.seqLen; tokens > 0; {
		err := c.stream.load(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		taken := min(len(c.stream.rest()), tokens)
		c.stream.advance(taken)
		tokens -= taken
	}
	return nil
}
