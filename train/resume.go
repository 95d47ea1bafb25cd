package train

import (
	"errors"
	"fmt"
)

// stateFolder is where the run's states are.
func (t *Trainer) stateFolder() StateFolder {
	f := StateFolder{Path: t.config.StatePath(), KeepLatest: t.config.State.KeepLatestK, fs: t.options.stateFS}
	if t.world.several() {
		f.writers = &writers{t.world.beside, t.device}
	}
	return f
}

// Save writes the state: parameters, moments, step and the loader's position. When it
// returns nil the state is durable. All processes of a job call it.
func (t *Trainer) Save() error { return t.save(nil) }

// save has the first process do something before the state is written, unless it is nil.
func (t *Trainer) save(before func() error) error {
	t.waitForSave()
	meta, err := t.stateMeta()
	if err != nil {
		return err
	}
	parts, err := t.shards.gather(false)
	if err != nil {
		return err
	}
	folder := t.stateFolder()
	folder.before = before
	warnings, err := folder.save(meta, parts)
	if err != nil {
		return err
	}
	t.warn(warnings...)
	t.noteSaved(meta.Step)
	return nil
}

func (t *Trainer) noteSaved(step int) {
	t.saved, t.newest = step, max(t.newest, step)
}

// stateMeta is what is saved besides tensors.
func (t *Trainer) stateMeta() (StateMeta, error) {
	if t.failed != nil {
		return StateMeta{}, fmt.Errorf("train: an earlier step failed, its state is not worth saving: %w", t.failed)
	}
	loader, err := t.ranks[0].loader.AppendState(nil)
	if err != nil {
		return StateMeta{}, fmt.Errorf("train: state: loader: %w", err)
	}
	hash, err := t.config.Hash()
	if err != nil {
		return StateMeta{}, fmt.Errorf("train: state: config: %w", err)
	}
	return StateMeta{Step: t.step, KernelLevel: t.device.Level(), ConfigHash: hash, Loader: loader}, nil
}

// start loads the run's newest state or, if it has none, what it is to start from.
func (t *Trainer) start() error {
	if t.options.initial {
		return nil
	}
	resumed, err := t.resume()
	if err != nil || resumed || t.config.State.InitialLoadPath == "" {
		return err
	}
	return t.initialLoad()
}

// resume loads the newest state, if there is one.
func (t *Trainer) resume() (resumed bool, err error) {
	if !t.config.State.Enable {
		return false, nil
	}
	folder := t.stateFolder()
	// Listed first: what is saved from now on is another run's.
	if steps, err := folder.Steps(); err == nil && len(steps) > 0 {
		t.newest = steps[len(steps)-1]
	}
	state, skipped, err := folder.LoadLatest()
	for _, s := range skipped {
		t.warn(fmt.Sprintf("%s is not used: %v", s.Path, s.Reason))
	}
	if errors.Is(err, ErrNoState) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer state.Close()
	if err := t.checkState(state); err != nil {
		return false, err
	}
	if err := state.readAll(t.shards.held()); err != nil {
		return false, err
	}
	if err := t.restoreLoaders(state); err != nil {
		return false, err
	}
	t.step, t.saved = state.Step, state.Step
	return true, nil
}

// restoreLoaders brings the data of every rank to the place where the state was saved.
func (t *Trainer) restoreLoaders(s *State) error {
	for _, r := range t.ranks {
		if err := r.loader.Restore(s.Loader); err != nil {
			return fmt.Errorf("train: state: %s: %w", s.Path(), err)
		}
	}
	return nil
}

// checkState warns of what makes a resumed run differ from one that never
// stopped, and refuses to take a finished run with another config for this one.
func (t *Trainer) checkState(s *State) error {
	hash, err := t.config.Hash()
	if err != nil {
		return fmt.Errorf("train: state: config: %w", err)
	}
	if hash != s.ConfigHash {
		if s.Step >= t.config.Training.Steps {
			return &ConfigError{fmt.Errorf("train: state: %s: it is at step %d of another config, and training.steps is %d; give another job.dump_folder to start anew, or more steps to go on", s.Path(), s.Step, t.config.Training.Steps)}
		}
		t.warn(fmt.Sprintf("%s was saved with another config: training goes on from it with the new one; give another job.dump_folder to start anew", s.Path()))
	}
	t.warnOfLevel(s)
	return nil
}

func (t *Trainer) warnOfLevel(s *State) {
	if level := t.device.Level(); level != s.KernelLevel {
		t.warn(fmt.Sprintf("%s was computed with %s kernels, this device has %s: training goes on, but not bit for bit as it would have", s.Path(), s.KernelLevel, level))
	}
}

// warn tells the user of doubts.
func (t *Trainer) warn(messages ...string) {
	for _, m := range messages {
		fmt.Fprintf(t.options.Log, "warning: %s\n", m)
	}
}
