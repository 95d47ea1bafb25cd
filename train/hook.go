package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Hook is what a user adds to [Trainer.Run]. Every function may be nil. Functions are
// called on the goroutine of Run, one at a time, and what they take counts as time of
// the run; they may read the Trainer but not make steps.
//
// An error ends the run with that error, except one that wraps [ErrEnough].
type Hook struct {
	// Name tells in errors whose they are.
	Name string
	// Priority orders the hooks at each point: lower ones come first, equal ones in
	// the order of [Options].Hooks, after those of Run itself. See [ReportPriority].
	Priority int

	// Start is called before the first step, after a state was loaded.
	Start func(ctx context.Context, t *Trainer) error
	// BeforeStep is called before each step: t.Steps() are done.
	BeforeStep func(ctx context.Context, t *Trainer) error
	// AfterStep is called after each step.
	AfterStep func(ctx context.Context, t *Trainer, r StepResult) error
	// Report is called with every line of metrics.
	Report func(ctx context.Context, t *Trainer, m Metrics) error
	// Validated is called after held-out data was measured.
	Validated func(ctx context.Context, t *Trainer, e Evaluation) error
	// Saved is called after the state of a step is complete on disk.
	Saved func(ctx context.Context, t *Trainer, step int) error
	// Finish is called once at the end, in the reverse order, with the error that
	// Run is about to return; also if Start of this hook failed.
	Finish func(ctx context.Context, t *Trainer, err error) error
}

// Priorities of what Run itself does after a step. A hook of priority 150 sees a step
// when its state is copied or saved, if it is due, and before held-out data is measured.
const (
	ReportPriority   = 0
	SavePriority     = 100
	ValidatePriority = 200
)

// ErrEnough is for a hook that has seen enough: Run saves the state, measures held-out
// data and returns nil, as after the last step.
var ErrEnough = errors.New("enough")

// hooks are in the order in which they are called.
type hooks []Hook

func newHooks(own, users []Hook) hooks {
	h := slices.Concat(own, users)
	slices.SortStableFunc(h, func(a, b Hook) int { return a.Priority - b.Priority })
	return h
}

// each calls all hooks at one point, up to the first error.
func (h hooks) each(point string, call func(*Hook) error) error {
	for i := range h {
		if err := call(&h[i]); err != nil {
			return h[i].errorf(point, err)
		}
	}
	return nil
}

// finish calls Finish of all hooks, whatever they return.
func (h hooks) finish(ctx context.Context, t *Trainer, cause error) error {
	errs := []error{cause}
	for _, k := range slices.Backward(h) {
		if k.Finish != nil {
			if err := k.Finish(ctx, t, cause); err != nil {
				errs = append(errs, k.errorf("at the end", err))
			}
		}
	}
	return errors.Join(errs...)
}

// errorf says whose error it is; Run's own hooks have no name.
func (k *Hook) errorf(point string, err error) error {
	if k.Name == "" {
		return err
	}
	return fmt.Errorf("train: hook %s %s: %w", k.Name, point, err)
}

func (h hooks) start(ctx context.Context, t *Trainer) error {
	return h.each("at the start", func(k *Hook) error {
		if k.Start == nil {
			return nil
		}
		return k.Start(ctx, t)
	})
}

func (h hooks) beforeStep(ctx context.Context, t *Trainer) error {
	return h.each("before a step", func(k *Hook) error {
		if k.BeforeStep == nil {
			return nil
		}
		return k.BeforeStep(ctx, t)
	})
}

func (h hooks) afterStep(ctx context.Context, t *Trainer, r StepResult) error {
	return h.each("after a step", func(k *Hook) error {
		if k.AfterStep == nil {
			return nil
		}
		return k.AfterStep(ctx, t, r)
	})
}

func (h hooks) report(ctx context.Context, t *Trainer, m Metrics) error {
	return h.each("at a report", func(k *Hook) error {
		if k.Report == nil {
			return nil
		}
		return k.Report(ctx, t, m)
	})
}

func (h hooks) validated(ctx context.Context, t *Trainer, e Evaluation) error {
	return h.each("after validation", func(k *Hook) error {
		if k.Validated == nil {
			return nil
		}
		return k.Validated(ctx, t, e)
	})
}

func (h hooks) saved(ctx context.Context, t *Trainer, step int) error {
	return h.each("after a save", func(k *Hook) error {
		if k.Saved == nil {
			return nil
		}
		return k.Saved(ctx, t, step)
	})
}
