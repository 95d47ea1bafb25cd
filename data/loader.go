package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/lethe-go/lethe/data/tokenizer"
)

// ErrTooShort is returned by [NewLoader] for a source that cannot fill a row.
var ErrTooShort = errors.New("text too short")

// Options says how a [Loader] orders and cuts its source.
type Options struct {
	SeqLen int // tokens in a row
	Rows   int // rows in a batch of this rank

	Rank  int // this rank, 0 ≤ Rank < Ranks
	Ranks int // number of ranks that share the rows; 0 means 1

	Seed    uint64 // of the order
	Shuffle bool   // a new order of the documents in every epoch; else the source's

	// Passes over the source before Next returns io.EOF; 0 means no end. With an
	// end, a source may be shorter than a row.
	Passes int
}

// Loader cuts a source into batches. The package's documentation states the rules.
type Loader struct {
	source    Source
	tokenizer tokenizer.Tokenizer
	options   Options

	position position // of the next token
	order    permutation
	document []int32 // tokens of the document at position, if loaded
	loaded   bool
}

// position is a place in the sequence of tokens that all ranks share.
type position struct {
	epoch    int64
	document int // place in the epoch's order
	token    int // in the document; less than the document has, once it is loaded
}

// NewLoader checks the options and that the source has enough text: SeqLen + 1
// tokens, or two with Passes. It reads only as many documents as that takes.
func NewLoader(ctx context.Context, s Source, t tokenizer.Tokenizer, o Options) (*Loader, error) {
	if o.Ranks == 0 {
		o.Ranks = 1
	}
	l := &Loader{source: s, tokenizer: t, options: o}
	switch {
	case o.SeqLen < 1:
		return nil, l.errorf("a row needs at least one token: SeqLen is %d", o.SeqLen)
	case o.Rows < 1:
		return nil, l.errorf("a batch needs at least one row: Rows is %d", o.Rows)
	case o.Ranks < 1 || o.Rank < 0 || o.Rank >= o.Ranks:
		return nil, l.errorf("rank %d is not one of %d ranks", o.Rank, o.Ranks)
	case o.Passes < 0:
		return nil, l.errorf("the number of passes is negative: %d", o.Passes)
	}
	if err := l.checkLength(ctx); err != nil {
		return nil, err
	}
	l.moveTo(position{})
	return l, nil
}

// Next fills b with this rank's next rows. It returns io.EOF, and leaves b
// undefined, when all passes are done; all ranks get it at the same call. After any
// other error the loader is where it was before, and Next may be called again.
func (l *Loader) Next(ctx context.Context, b *Batch) error {
	before := l.position
	err := l.next(ctx, b)
	if err != nil {
		l.moveTo(before)
	}
	return err
}

// All yields the loader's batches from where it stands. It is one Batch, filled
// anew each time: copy what must outlive the loop's body. After a batch that the
// body has seen, State is the position of the next one. It stops after an error.
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

func (l *Loader) next(ctx context.Context, b *Batch) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	o := l.options
	b.shape(o.Rows, o.SeqLen)
	if err := l.skip(ctx, o.Rank*o.Rows*o.SeqLen); err != nil {
		return err
	}
	for i := range o.Rows {
		valid, err := l.fill(ctx, b.row(i))
		if err != nil {
			return err
		}
		b.Valid += valid
	}
	return l.skip(ctx, (o.Ranks-1-o.Rank)*o.Rows*o.SeqLen)
}

// fill takes the tokens of one row and returns its number of valid labels.
func (l *Loader) fill(ctx context.Context, r row) (valid int, err error) {
	for column := 0; column < len(r.tokens); {
		err := l.load(ctx)
		if err == io.EOF {
			r.pad(column, max(0, l.tokenizer.EOS()))
			break
		}
		if err != nil {
			return 0, err
		}
		piece := l.document[l.position.token:]
		n := min(len(piece), len(r.tokens)-column)
		valid += r.put(column, n, piece)
		l.advance(n)
		column += n
	}
	return valid, nil
}

// skip passes over the rows of other ranks.
func (l *Loader) skip(ctx context.Context, tokens int) error {
	for tokens > 0 {
		err := l.load(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		n := min(len(l.document)-l.position.token, tokens)
		l.advance(n)
		tokens -= n
	}
	return nil
}

// load makes the document at the position ready, and goes on to the next one that
// has text where it has none. It returns io.EOF after the last pass.
func (l *Loader) load(ctx context.Context) error {
	if l.loaded {
		return nil
	}
	// Two epochs in a row hold a whole one, wherever the position is in the first.
	for range 2 * l.source.Len() {
		if p := l.options.Passes; p > 0 && l.position.epoch >= int64(p) {
			return io.EOF
		}
		var err error
		l.document, err = appendDocument(ctx, l.document[:0], l.source, l.tokenizer, l.index())
		if err != nil {
			return err
		}
		if l.position.token < len(l.document) {
			l.loaded = true
			return nil
		}
		if l.position.token > 0 {
			return l.errorf("%w: token %d of document %d, which has %d", ErrState, l.position.token, l.index(), len(l.document))
		}
		l.advance(0)
	}
	return l.errorf("%w: none of the %d documents has text any more", ErrNoDocument, l.source.Len())
}

// index is the number, in the source, of the document at the position.
func (l *Loader) index() int {
	if l.options.Shuffle {
		return l.order.at(l.position.document)
	}
	return l.position.document
}

// advance takes n tokens of the loaded document. A position at the end of a
// document is always written as the start of the next, so that equal places have
// equal states.
func (l *Loader) advance(n int) {
	p := l.position
	p.token += n
	if p.token < len(l.document) {
		l.position = p
		return
	}
	p.token = 0
	if p.document++; p.document == l.source.Len() {
		p.document = 0
		p.epoch++
	}
	l.moveTo(p)
}

func (l *Loader) moveTo(p position) {
	l.position, l.loaded = p, false
	l.order = newPermutation(l.source.Len(), l.options.Seed, p.epoch)
}

func (l *Loader) checkLength(ctx context.Context) error {
	need, why := 2, "one, and one to predict"
	if l.options.Passes == 0 {
		need, why = l.options.SeqLen+1, fmt.Sprintf("sequence length %d, and one to predict", l.options.SeqLen)
	}
	tokens := 0
	for i := range l.source.Len() {
		var err error
		l.document, err = appendDocument(ctx, l.document[:0], l.source, l.tokenizer, i)
		if err != nil {
			return err
		}
		if tokens += len(l.document); tokens >= need {
			return nil
		}
	}
	return l.errorf("%w: %d tokens in %d documents, but %d are needed (%s): use more text or a shorter sequence",
		ErrTooShort, tokens, l.source.Len(), need, why)
}

func (l *Loader) errorf(format string, arguments ...any) error {
	return fmt.Errorf("data: %s: "+format, append([]any{l.source.Name()}, arguments...)...)
}

// appendDocument appends the tokens of a source's document: BOS, text, EOS; or
// nothing if it has no text.
func appendDocument(ctx context.Context, ids []int32, s Source, t tokenizer.Tokenizer, i int) ([]int32, error) {
	if err := ctx.Err(); err != nil {
		return ids, fmt.Errorf("data: %s: document %d: %w", s.Name(), i, err)
	}
	text, err := s.Document(ctx, i)
	if err != nil || text == "" {
		return ids, err
	}
	if bos := t.BOS(); bos >= 0 {
		ids = append(ids, bos)
	}
	ids = t.AppendEncode(ids, text)
	if eos := t.EOS(); eos >= 0 {
		ids = append(ids, eos)
	}
	return ids, nil
}
