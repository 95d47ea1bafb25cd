package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/lethe-go/lethe/graph"
)

// explain adds to the error of a step that is not finite where that began: the step is
// run again with a watch on every operation. Parameters and moments stay as they are;
// gradients and the counters of the step do not, and a failed Trainer has no use for them.
func (t *Trainer) explain(ctx context.Context, err error) error {
	if !errors.Is(err, graph.ErrNonFinite) {
		return err
	}
	err = fmt.Errorf("%w; the parameters were not updated and saved states are intact: resume with a lower optimizer.lr or training.max_norm", err)
	var found *graph.NonFiniteError
	if errors.As(err, &found) { // metrics.nan_watch
		return err
	}
	again := t.findNonFinite(ctx)
	switch {
	case errors.As(again, &found):
		again = fmt.Errorf("train: step %d was run again to find where that begins: %w", t.step+1, again)
	case again == nil:
		again = fmt.Errorf("train: step %d was run again to find where that begins, and every result was finite: only their sum over microbatches or ranks is not", t.step+1)
	default:
		again = fmt.Errorf("train: step %d could not be run again to find where that begins: %w; set metrics.nan_watch=true to look at every operation", t.step+1, again)
	}
	return errors.Join(err, again)
}

// findNonFinite runs forward, backward and norm of the failed step again, watched.
func (t *Trainer) findNonFinite(ctx context.Context) error {
	for _, r := range t.ranks {
		m := &r.machines
		if err := r.watch(m.first.Machine, machineOf(m.more), machineOf(m.last), m.norm); err != nil {
			return err
		}
	}
	return t.together(ctx, func(ctx context.Context, r *rank) error {
		if err := r.accumulate(ctx, t.step+1); err != nil {
			return err
		}
		return r.machines.norm.Run(ctx, graph.RunOptions{Step: t.step + 1})
	})
}

func (r *rank) watch(machines ...*graph.Machine) error {
	for _, m := range machines {
		if m == nil {
			continue
		}
		if err := m.Watch(); err != nil {
			return err
		}
	}
	return nil
}
