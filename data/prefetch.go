package data

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Prefetch prepares up to ahead batches of another Batches in a goroutine, so that
// reading and tokenizing take no time of the step. With ahead 0 it returns b itself.
//
// The batches, their states and their errors are those of b, in the same order:
// AppendState is the position behind the batch that Next gave last, however many more
// have been prepared. Next exchanges the caller's slices for prepared ones: nothing is
// copied, and once warm nothing is allocated but what b allocates. From now on b
// belongs to what is returned, and Close closes it.
//
// The goroutine runs from the first Next to the first error, to a Restore or to Close,
// which waits for b.Next to return: soon after its context ends. If that takes more than ten
// seconds Close returns an error, and b is closed once Next has returned.
func Prefetch(b Batches, ahead int) Batches {
	if ahead <= 0 {
		return b
	}
	p := &prefetcher{of: b, empty: make(chan *prepared, ahead), ready: make(chan *prepared, ahead)}
	for range ahead {
		p.empty <- &prepared{state: new(savedState)}
	}
	return p
}

type prefetcher struct {
	of           Batches
	empty, ready chan *prepared // every slot is in one of them, or in the hands of one side
	state        *savedState    // behind the batch that was given last; nil while it is that of b
	stop         context.CancelFunc
	stopped      chan struct{} // closed by the goroutine; nil if none was started
	closed       bool
}

// prepared is a batch with the state behind it, or an error.
type prepared struct {
	batch Batch
	state *savedState
	err   error
}

// savedState is what AppendState said.
type savedState struct {
	text []byte
	err  error
}

func (s *savedState) of(b Batches) { s.text, s.err = b.AppendState(s.text[:0]) }

var errClosed = errors.New("data: prefetch: it is closed")

func (p *prefetcher) Next(ctx context.Context, b *Batch) error {
	if p.closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("data: prefetch: %w", err)
	}
	if p.stopped == nil {
		p.start(ctx)
	}
	select {
	case s := <-p.ready:
		return p.take(s, b)
	default:
	}
	select {
	case s := <-p.ready:
		return p.take(s, b)
	case <-ctx.Done():
		return fmt.Errorf("data: prefetch: %w", ctx.Err())
	}
}

// take gives a slot's batch or error to the caller.
func (p *prefetcher) take(s *prepared, b *Batch) error {
	err := s.err
	if err != nil {
		// The goroutine ended with it. The next call tries again.
		if late := p.halt(); late != nil {
			err = errors.Join(err, late)
		}
		s.err = nil
	} else {
		*b, s.batch = s.batch, *b
		p.state, s.state = s.state, p.state
	}
	p.empty <- s
	return err
}

// start runs the goroutine. Its context has the caller's values, but not its end: what
// one call of Next gives up is there for the next.
func (p *prefetcher) start(ctx context.Context) {
	if p.state == nil {
		p.state = new(savedState)
		p.state.of(p.of)
	}
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.stopped = make(chan struct{})
	go p.prepare(ctx, p.stopped)
}

func (p *prefetcher) prepare(ctx context.Context, stopped chan<- struct{}) {
	defer close(stopped)
	for {
		var s *prepared
		select {
		case s = <-p.empty:
		case <-ctx.Done():
			return
		}
		s.err = p.of.Next(ctx, &s.batch)
		if s.err == nil {
			s.state.of(p.of)
		} else if ctx.Err() != nil {
			// It was told to stop, which is not the caller's error; b is where it was.
			s.err = nil
			p.empty <- s
			return
		}
		// The goroutine may not touch the slot once it is given away.
		failed := s.err != nil
		p.ready <- s
		if failed {
			return
		}
	}
}

// patience is how long Next may take to return when its context has ended.
const patience = 10 * time.Second

// halt ends the goroutine. What it has prepared stays.
func (p *prefetcher) halt() error {
	if p.stopped == nil {
		return nil
	}
	p.stop()
	select {
	case <-p.stopped:
		p.stopped = nil
		return nil
	case <-time.After(patience):
		return fmt.Errorf("data: prefetch: Next of %T has not returned %v after the end of its context; it has to heed it", p.of, patience)
	}
}

func (p *prefetcher) AppendState(to []byte) ([]byte, error) {
	if p.state == nil {
		return p.of.AppendState(to)
	}
	return append(to, p.state.text...), p.state.err
}

func (p *prefetcher) Restore(state []byte) error {
	if p.closed {
		return errClosed
	}
	if err := p.halt(); err != nil {
		return err
	}
	if err := p.of.Restore(state); err != nil {
		return err
	}
	for len(p.ready) > 0 {
		s := <-p.ready
		s.err = nil
		p.empty <- s
	}
	p.state = nil
	return nil
}

func (p *prefetcher) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if err := p.halt(); err != nil {
		go func() {
			<-p.stopped
			_ = p.of.Close() // there is nobody to tell any more
		}()
		return err
	}
	return p.of.Close()
}
