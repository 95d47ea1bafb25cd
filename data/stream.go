package data

import (
	"context"
	"fmt"
	"io"

	"github.com/lethe-go/lethe/data/tokenizer"
)

// stream is the sequence of documents, as tokens, that all ranks share.
type stream struct {
	name      string
	parts     []Weighted
	shuffles  []shuffle
	tokenizer tokenizer.Tokenizer
	passes    int

	at       place
	document []int32 // tokens of the document at the place, if loaded
	part     int     // that the document belongs to
	loaded   bool
}

// place is a place in the stream: everything that the rest of it depends on.
type place struct {
	parts []partPlace
	token int // in the next document; less than the document has, once it is loaded
}

// partPlace is how far one source has been read.
type partPlace struct {
	Epoch    int64 `json:"epoch"`    // passes completed
	Document int   `json:"document"` // documents of this epoch completed, in the epoch's order
	Tokens   int64 `json:"tokens"`   // of all documents completed
}

func (p *place) copyFrom(q *place) {
	p.parts = append(p.parts[:0], q.parts...)
	p.token = q.token
}

func (s *stream) moveTo(p *place) {
	s.at.copyFrom(p)
	s.loaded = false
}

// rest is what is left of the loaded document.
func (s *stream) rest() []int32 { return s.document[s.at.token:] }

// load makes the document at the place ready, and goes on to the next one that has
// text where it has none. It returns io.EOF after the last pass.
func (s *stream) load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	for empty := 0; ; empty++ {
		s.part = s.turn()
		p, source := s.at.parts[s.part], s.parts[s.part].Source
		if s.passes > 0 && p.Epoch >= int64(s.passes) {
			return io.EOF
		}
		// Two epochs in a row hold a whole one, wherever the place is in the first. A
		// source without tokens keeps its turn.
		if empty >= 2*source.Len() {
			return s.errorf("%w: none of the %d documents of %s has text any more", ErrNoDocument, source.Len(), source.Name())
		}
		i := s.shuffles[s.part].at(source.Len(), p.Epoch, p.Document)
		var err error
		s.document, err = appendDocument(ctx, s.document[:0], source, s.tokenizer, i)
		if err != nil {
			return err
		}
		if s.at.token < len(s.document) {
			s.loaded = true
			return nil
		}
		if s.at.token > 0 {
			return s.errorf("%w: token %d of document %d of %s, which has %d", ErrState, s.at.token, i, source.Name(), len(s.document))
		}
		s.advance(0)
	}
}

// advance takes n tokens of the loaded document. A place at the end of a document is
// always written as the start of the next, so that equal places have equal states.
func (s *stream) advance(n int) {
	if s.at.token += n; s.at.token < len(s.document) {
		return
	}
	p := &s.at.parts[s.part]
	p.Tokens += int64(len(s.document))
	if p.Document++; p.Document == s.parts[s.part].Source.Len() {
		p.Document = 0
		p.Epoch++
	}
	s.at.token, s.loaded = 0, false
}

// checkLength reads as many documents as it takes to see that there is enough text.
func (s *stream) checkLength(ctx context.Context, seqLen int) error {
	need, why := 2, "one, and one to predict"
	if s.passes == 0 {
		need, why = seqLen+1, fmt.Sprintf("sequence length %d, and one to predict", seqLen)
	}
	tokens, documents, mixed := 0, 0, len(s.parts) > 1
	for _, p := range s.parts {
		longest := 0
		for i := range p.Source.Len() {
			var err error
			s.document, err = appendDocument(ctx, s.document[:0], p.Source, s.tokenizer, i)
			if err != nil {
				return err
			}
			longest = max(longest, len(s.document))
			if tokens += len(s.document); tokens >= need && (longest >= 2 || !mixed) {
				break
			}
		}
		if documents += p.Source.Len(); longest < 2 && mixed {
			return s.errorf("%w: no document of %s has anything to predict: leave it out", ErrTooShort, p.Source.Name())
		}
	}
	if tokens < need {
		return s.errorf("%w: %d tokens in %d documents, but %d are needed (%s): use more text or a shorter sequence",
			ErrTooShort, tokens, documents, need, why)
	}
	return nil
}

func (s *stream) errorf(format string, arguments ...any) error {
	return fmt.Errorf("data: %s: "+format, append([]any{s.name}, arguments...)...)
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
