package data

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/data/tokenizer"
)

// ErrTooShort is returned by [NewLoader] for a source that cannot fill a row.
var ErrTooShort = errors.New("text too short")

// Options says how a [Loader] orders and packs its text.
type Options struct {
	SeqLen int // tokens in a row
	Rows   int // rows in a batch of this rank

	Rank  int // this rank, 0 ≤ Rank < Ranks
	Ranks int // number of ranks that share the rows; 0 means 1

	Seed    uint64 // of the order
	Shuffle bool   // a new order of the documents in every epoch; else the source's

	// ShuffleWindow bounds, in documents, how far Shuffle moves a document, so that files
	// are read nearly in order. 0 means anywhere.
	ShuffleWindow int

	Packing Packing // of documents into rows; "" means Concatenate

	// Passes over the source before Next returns io.EOF; 0 means no end. With an
	// end, a source may be shorter than a row. A mixture has no end.
	Passes int
}

// Loader packs text into batches. The package's documentation states the rules.
type Loader struct {
	stream   *stream
	packer   packer
	options  Options
	identity []byte   // of what it reads, for its states
	before   position // memory of Next
	now      position // memory of AppendState
}

// NewLoader returns a loader of one source. It checks the options and that the source
// has enough text: SeqLen + 1 tokens, or two with Passes. It reads only as many
// documents as that takes.
func NewLoader(ctx context.Context, s Source, t tokenizer.Tokenizer, o Options) (*Loader, error) {
	return NewMixedLoader(ctx, []Weighted{{Source: s, Weight: 1}}, t, o)
}

// NewMixedLoader returns a loader of several sources, each of which goes through epochs
// of its own and gives its share of the tokens. Every source needs a document with
// something to predict, all together SeqLen + 1 tokens.
func NewMixedLoader(ctx context.Context, parts []Weighted, t tokenizer.Tokenizer, o Options) (*Loader, error) {
	if o.Ranks == 0 {
		o.Ranks = 1
	}
	names := make([]string, len(parts))
	shuffles := make([]shuffle, len(parts))
	for i, p := range parts {
		names[i], shuffles[i] = p.Source.Name(), newShuffle(o, i)
	}
	s := &stream{name: strings.Join(names, "+"), parts: slices.Clone(parts), shuffles: shuffles, tokenizer: t, passes: o.Passes}
	l := &Loader{stream: s, options: o}
	if err := l.checkOptions(); err != nil {
		return nil, err
	}
	if err := s.checkLength(ctx, o.SeqLen); err != nil {
		return nil, err
	}
	var err error
	if l.packer, err = newPacker(s, o); err != nil {
		return nil, s.errorf("%w", err)
	}
	if l.identity, err = l.identify(); err != nil {
		return nil, s.errorf("%w", err)
	}
	l.packer.moveTo(&position{place: place{parts: make([]partPlace, len(parts))}})
	return l, nil
}

func (l *Loader) checkOptions() error {
	o, s := l.options, l.stream
	if err := checkWeights(s.parts); err != nil {
		return s.errorf("%w", err)
	}
	switch {
	case o.SeqLen < 1:
		return s.errorf("a row needs at least one token: SeqLen is %d", o.SeqLen)
	case o.Rows < 1:
		return s.errorf("a batch needs at least one row: Rows is %d", o.Rows)
	case o.Ranks < 1 || o.Rank < 0 || o.Rank >= o.Ranks:
		return s.errorf("rank %d is not one of %d ranks", o.Rank, o.Ranks)
	case o.Passes < 0:
		return s.errorf("the number of passes is negative: %d", o.Passes)
	case o.Passes > 0 && len(s.parts) > 1:
		return s.errorf("a mixture has no end, for its sources have different ones: Passes is %d", o.Passes)
	case o.ShuffleWindow < 0:
		return s.errorf("the shuffle window is negative: %d", o.ShuffleWindow)
	}
	return nil
}

// Next fills b with this rank's next rows. It returns io.EOF, and leaves b
// undefined, when all passes are done; all ranks get it at the same call. After any
// other error the loader is where it was before, and Next may be called again.
func (l *Loader) Next(ctx context.Context, b *Batch) error {
	l.packer.position(&l.before)
	err := l.next(ctx, b)
	if err != nil {
		l.packer.moveTo(&l.before)
	}
	return err
}

func (l *Loader) next(ctx context.Context, b *Batch) error {
	if err := l.packer.ready(ctx); err != nil {
		return err
	}
	o := l.options
	b.shape(o.Rows, o.SeqLen)
	if err := l.packer.skip(ctx, o.Rank*o.Rows); err != nil {
		return err
	}
	for i := range o.Rows {
		n, err := l.packer.fill(ctx, b.row(i))
		if err != nil {
			return err
		}
		b.Valid += n.valid
		b.Padding += n.padding
	}
	return l.packer.skip(ctx, (o.Ranks-1-o.Rank)*o.Rows)
}

// Close does nothing: a Loader alone has nothing in the background.
func (l *Loader) Close() error { return nil }

// All yields the loader's batches from where it stands. It is one Batch, filled
// anew each time: copy what must outlive the loop's body. After a batch that the
// body has seen, AppendState writes the position of the next one. It stops after an error.
func (l *Loader) All(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		var b Batch
		for {
			err := l.Next(ctx, &b)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&b, nil) {
				return
			}
		}
	}
}
