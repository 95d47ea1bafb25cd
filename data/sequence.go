package data

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
)

// Sequence returns the Batches of an iterator: the way to feed a dataset of one's own.
// open begins the sequence anew and must yield the same batches every time, since a
// resume passes over those that were trained on. Where that takes too long, implement
// [Batches] instead.
//
// A yielded batch is copied. It needs Rows, SeqLen, Tokens and Labels; without
// Positions and DocumentStart every row is one document. Valid is counted. The context given to open ends when the sequence is
// left. After an error that the iterator yields, and when the context of Next ends, the
// next Next opens the sequence again.
func Sequence(name string, open func(ctx context.Context) iter.Seq2[*Batch, error]) Batches {
	return &sequence{name: name, open: open}
}

type sequence struct {
	name string
	open func(ctx context.Context) iter.Seq2[*Batch, error]
	done int64 // batches given

	next   func() (*Batch, error, bool) // nil if the sequence is not open
	leave  func()
	cancel context.CancelFunc
}

func (s *sequence) Next(ctx context.Context, b *Batch) error {
	if err := ctx.Err(); err != nil {
		return s.errorf("%w", err)
	}
	if s.next == nil {
		if err := s.reopen(ctx); err != nil {
			return err
		}
	}
	x, err := s.pull(ctx)
	if err == nil {
		err = s.copy(b, x)
	}
	if err != nil {
		s.close()
		return err
	}
	s.done++
	return nil
}

// reopen goes from the beginning to behind the batches that are done.
func (s *sequence) reopen(ctx context.Context) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.next, s.leave = iter.Pull2(s.open(inner))
	for i := range s.done {
		_, err := s.pull(ctx)
		if err == io.EOF {
			err = s.errorf("%w: the sequence ends after %d batches, before the %d that are done", ErrState, i, s.done)
		}
		if err != nil {
			s.close()
			return err
		}
	}
	return nil
}

// pull returns the next batch of the iterator, which is told when ctx ends.
func (s *sequence) pull(ctx context.Context) (*Batch, error) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, s.cancel)()
	}
	b, err, ok := s.next()
	switch {
	case ctx.Err() != nil:
		return nil, s.errorf("%w", ctx.Err())
	case !ok:
		return nil, io.EOF
	case err != nil:
		return nil, s.errorf("batch %d: %w", s.done, err)
	case b == nil:
		return nil, s.errorf("batch %d is nil", s.done)
	}
	return b, nil
}

func (s *sequence) copy(to, from *Batch) error {
	n := len(from.Tokens)
	fits := func(list []int32) bool { return list == nil || len(list) == n }
	if from.Rows < 1 || from.SeqLen < 1 || n/from.SeqLen != from.Rows || n%from.SeqLen != 0 || len(from.Labels) != n || !fits(from.Positions) || !fits(from.DocumentStart) {
		return s.errorf("batch %d: %d tokens, %d labels, %d positions and %d document starts are not %d rows of %d", s.done,
			n, len(from.Labels), len(from.Positions), len(from.DocumentStart), from.Rows, from.SeqLen)
	}
	to.shape(from.Rows, from.SeqLen)
	copy(to.Tokens, from.Tokens)
	copy(to.Labels, from.Labels)
	for i := range to.Rows {
		to.row(i).number(0, to.SeqLen)
	}
	copy(to.Positions, from.Positions)
	copy(to.DocumentStart, from.DocumentStart)
	for _, label := range to.Labels {
		if label != Ignore {
			to.Valid++
		}
	}
	to.Padding = from.Padding
	return nil
}

type sequenceState struct {
	Batches int64 `json:"batches"` // given
}

func (s *sequence) AppendState(to []byte) ([]byte, error) {
	return append(strconv.AppendInt(append(to, `{"batches":`...), s.done, 10), '}'), nil
}

func (s *sequence) Restore(state []byte) error {
	x := sequenceState{Batches: -1}
	if err := json.Unmarshal(state, &x); err != nil {
		return s.errorf("%w: %w", ErrState, err)
	}
	if x.Batches < 0 {
		return s.errorf("%w: it has no number of batches", ErrState)
	}
	s.close()
	s.done = x.Batches
	return nil
}

func (s *sequence) Close() error {
	s.close()
	return nil
}

func (s *sequence) close() {
	if s.next != nil {
		s.cancel()
		s.leave()
		s.next = nil
	}
}

func (s *sequence) errorf(format string, arguments ...any) error {
	return fmt.Errorf("data: %s: "+format, append([]any{s.name}, arguments...)...)
}
