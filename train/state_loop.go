package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/lethe-go/lethe/internal/folderlock"
)

// This file says when Run saves, and what becomes of a save that fails.

// lockFolder makes the dump folder this run's alone.
func (l *loop) lockFolder() error {
	l.waitForSave()
	folder := l.config.Job.DumpFolder
	var held *folderlock.HeldError
	var err error
	l.lock, err = folderlock.Acquire(folder)
	switch {
	case errors.As(err, &held):
		return &ConfigError{fmt.Errorf("train: job.dump_folder: another run writes to it: %w; wait for its end or give another job.dump_folder", err)}
	case errors.Is(err, errors.ErrUnsupported):
		l.warn(fmt.Sprintf("train: job.dump_folder: %v; see to it yourself that no other run writes to it", err))
	case err != nil:
		return fmt.Errorf("train: job.dump_folder: %w; name a folder that can be written", err)
	}
	if !l.config.State.Enable {
		return nil
	}
	// Whoever held the lock may have gone on from where this run was going to.
	steps, err := l.stateFolder().Steps()
	if err != nil || len(steps) == 0 {
		return err
	}
	if newest := steps[len(steps)-1]; newest > l.newest {
		return fmt.Errorf("train: state: %s: the state of step %d was saved after this run had loaded that of step %d; start again to go on from it", l.config.StatePath(), newest, l.newest)
	}
	return nil
}

// saveIfDue saves at every interval. A failed save does not end the run: what was
// trained since the last state would be lost for sure, while the disk may have room
// again at the next interval. Only the last save of a run has to succeed.
func (l *loop) saveIfDue(ctx context.Context, _ *Trainer, _ StepResult) error {
	if err := l.settle(ctx, false); err != nil {
		return err
	}
	c := l.config.State
	if !c.Enable || l.step%c.Interval != 0 {
		return nil
	}
	if l.step >= l.config.Training.Steps {
		return l.save(ctx)
	}
	return l.offClock(func() error {
		if !c.async() {
			if err := l.saveNow(); err != nil {
				l.warn(unsaved(err))
				return nil
			}
			return l.tellSaved(ctx, l.step)
		}
		if s := l.saving; s != nil {
			if !l.waited {
				l.warn(fmt.Sprintf("train: state: step %d is due while step %d is being written: the step waits for it, as later ones will; raise state.interval", l.step, s.step))
				l.waited = true
			}
			if err := l.settle(ctx, true); err != nil {
				return err
			}
		}
		if _, err := l.saveAsync(l.syncMetrics); err != nil {
			l.warn(unsaved(err))
		}
		return nil
	})
}

// settle takes note of a state that was written in the background; with wait it lets the
// writing end.
func (l *loop) settle(ctx context.Context, wait bool) error {
	s := l.saving
	if s == nil {
		return nil
	}
	if !wait {
		select {
		case <-s.Done():
		default:
			return nil
		}
	}
	err := s.Wait()
	l.saving = nil
	if err != nil {
		l.warn(unsaved(err))
		return nil
	}
	l.noteSaved(s.step)
	l.warn(s.warnings...)
	return l.tellSaved(ctx, s.step)
}

// save returns when the state of this step is on disk.
func (l *loop) save(ctx context.Context) error {
	if err := l.settle(ctx, true); err != nil {
		return err
	}
	if !l.config.State.Enable || l.saved == l.step {
		return nil
	}
	return l.offClock(func() error {
		if err := l.saveNow(); err != nil {
			return err
		}
		return l.tellSaved(ctx, l.step)
	})
}

// saveNow returns when the state is on disk.
func (l *loop) saveNow() error { return l.Trainer.save(l.syncMetrics) }

// syncMetrics makes the metrics durable before a state is written: a resumed run has a line
// for every reported step before its state. The first process calls it, which has them.
func (l *loop) syncMetrics() error { return l.metrics.Sync() }

func (l *loop) tellSaved(ctx context.Context, step int) error {
	l.print("state:   step %d saved in %s", step, l.config.StatePath())
	return l.hooks.saved(ctx, l.Trainer, step)
}
