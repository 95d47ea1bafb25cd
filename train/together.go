package train

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lethe-go/lethe/collective"
)

// together runs f for every rank of this process at once and returns the error that came
// first in the order of blame: that of a rank itself before those of ranks that waited for
// it. The context of all ends when one has failed.
func (t *Trainer) together(ctx context.Context, f func(ctx context.Context, r *rank) error) error {
	return t.allOf(ctx, t.ranks, f)
}

// allOf is together for ranks of one's own.
func (t *Trainer) allOf(ctx context.Context, ranks []*rank, f func(ctx context.Context, r *rank) error) error {
	if len(ranks) == 1 {
		return ranks[0].fail(f(ctx, ranks[0]))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(ranks))
	var running sync.WaitGroup
	for i, r := range ranks {
		running.Go(func() {
			err := f(ctx, r)
			if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && errors.Is(cause, collective.ErrAborted) {
				err = cause // another rank is to blame
			}
			errs[i] = r.fail(err)
			if errs[i] != nil && !isCommon(errs[i]) {
				cancel(fmt.Errorf("%w: %w", collective.ErrAborted, errs[i]))
			}
		})
	}
	ended := make(chan struct{})
	defer context.AfterFunc(ctx, func() { t.giveUp(ctx, ended) })()
	running.Wait()
	close(ended)
	return blame(errs)
}

// patience is the most that ranks get to end when one of them has failed.
const patience = 10 * time.Second

// giveUp is called when a rank has failed. Ranks that do not end then wait for something that
// heeds no context.
func (t *Trainer) giveUp(ctx context.Context, ended <-chan struct{}) {
	wait := patience
	if d := time.Duration(t.world.timeout); d > 0 {
		wait = min(wait, d)
	}
	select {
	case <-ended:
	case <-time.After(wait):
		if t.options.Stuck != nil {
			t.options.Stuck(fmt.Errorf("train: a rank has not stopped %v after the end of the others: %w", wait, context.Cause(ctx)))
		}
	}
}

// blame is the error of a rank that waited for no other, if there is one.
func blame(errs []error) (blamed error) {
	for _, err := range errs {
		switch {
		case err == nil:
		case isCommon(err):
			return err // every rank has it
		case blamed == nil, errors.Is(blamed, collective.ErrAborted) && !errors.Is(err, collective.ErrAborted):
			blamed = err
		}
	}
	return blamed
}

// fail ends the groups of a rank that has failed, so that none waits for it, and names it in
// the error. The flight record is written before.
func (r *rank) fail(err error) error {
	if err == nil || r.ends.data == nil {
		return err
	}
	if isCommon(err) {
		_ = r.flight.Write(err) // must not hide the cause, which the caller has
		return err
	}
	if !errors.Is(err, collective.ErrAborted) {
		err = fmt.Errorf("rank %d: %w", r.index, err)
	}
	r.ends.abort(err)
	return err
}

// common is an error that every rank of the job has by itself, from what all of them know:
// none needs to be told by another.
type common struct{ error }

func (c *common) Unwrap() error { return c.error }

func isCommon(err error) bool {
	var c *common
	return errors.As(err, &c)
}
