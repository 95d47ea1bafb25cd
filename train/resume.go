package train

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lethe-go/lethe/data"
)

// stateFolder is where the run's states are.
func (c Config) stateFolder() StateFolder {
	return StateFolder{Path: c.StatePath(), KeepLatest: c.State.KeepLatestK}
}

// Save writes the state: parameters, moments, step and the loader's position.
func (t *Trainer) Save() error {
	if t.failed != nil {
		return fmt.Errorf("train: an earlier step failed, its state is not worth saving: %w", t.failed)
	}
	loader, err := json.Marshal(t.ranks[0].loader.State())
	if err != nil {
		return fmt.Errorf("train: state: loader: %w", err)
	}
	hash, err := t.config.Hash()
	if err != nil {
		return fmt.Errorf("train: state: config: %w", err)
	}
	meta := StateMeta{Step: t.step, KernelLevel: t.device.Level(), ConfigHash: hash, Loader: loader}
	warnings, err := t.config.stateFolder().Save(meta, newShards(t.ranks).gather())
	if err != nil {
		return err
	}
	t.warn(warnings...)
	t.saved = t.step
	return nil
}

// resume loads the newest state, if there is one.
func (t *Trainer) resume() error {
	if !t.config.State.Enable {
		return nil
	}
	state, skipped, err := t.config.stateFolder().LoadLatest()
	for _, s := range skipped {
		t.warn(fmt.Sprintf("%s is not used: %v", s.Path, s.Reason))
	}
	if errors.Is(err, ErrNoState) {
		return nil
	}
	if err != nil {
		return err
	}
	defer state.Close()
	if err := t.checkState(state); err != nil {
		return err
	}
	shards := newShards(t.ranks)
	whole := shards.gather()
	if err := state.Read(whole); err != nil {
		return err
	}
	shards.scatter(whole)
	var position data.State
	if err := json.Unmarshal(state.Loader, &position); err != nil {
		return fmt.Errorf("train: state: %s: position of the data: %w", state.Path(), err)
	}
	for _, r := range t.ranks {
		if err := r.loader.Restore(position); err != nil {
			return fmt.Errorf("train: state: %s: %w", state.Path(), err)
		}
	}
	t.step, t.saved = state.Step, state.Step
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
	if level := t.device.Level(); level != s.KernelLevel {
		t.warn(fmt.Sprintf("%s was computed with %s kernels, this device has %s: training goes on, but not bit for bit as it would have", s.Path(), s.KernelLevel, level))
	}
	return nil
}

// warn tells the user of doubts.
func (t *Trainer) warn(messages ...string) {
	for _, m := range messages {
		fmt.Fprintf(t.options.Log, "warning: %s\n", m)
	}
}
