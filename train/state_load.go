package train

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/internal/pattern"
)

// This file starts a run from the state of another one: state.initial_load_path.

// initialLoad loads what the config wants of another run's state.
func (t *Trainer) initialLoad() error {
	c := t.config.State
	state, skipped, err := findState(c.InitialLoadPath)
	for _, s := range skipped {
		t.warn(fmt.Sprintf("%s is not used: %v", s.Path, s.Reason))
	}
	if err != nil {
		return &ConfigError{fmt.Errorf("train: config: state.initial_load_path: %w", err)}
	}
	defer state.Close()
	load, keep, err := c.selectTensors(state, t.shards.held())
	if err != nil {
		return &ConfigError{err}
	}
	for _, parts := range load {
		if err := state.readParts(parts); err != nil {
			return err
		}
	}
	if !c.InitialLoadModelOnly {
		if err := t.goOnFrom(state); err != nil {
			return err
		}
	}
	t.tellLoaded(state, load, keep)
	return nil
}

// goOnFrom takes over what is not in tensors: the step and the place in the data.
func (t *Trainer) goOnFrom(s *State) error {
	if s.Step >= t.config.Training.Steps {
		return &ConfigError{fmt.Errorf("train: config: state.initial_load_path: %s is at step %d, and training.steps is %d; set more steps, or state.initial_load_model_only=true to begin at step 0", s.Path(), s.Step, t.config.Training.Steps)}
	}
	t.warnOfLevel(s)
	if err := t.restoreLoaders(s); err != nil {
		return err
	}
	t.step = s.Step
	return nil
}

// tellLoaded says what is and what is not from the state.
func (t *Trainer) tellLoaded(s *State, load [][]part, keep []string) {
	begins := "begins at step 0"
	if !t.config.State.InitialLoadModelOnly {
		begins = fmt.Sprintf("goes on after step %d", s.Step)
	}
	fmt.Fprintf(t.options.Log, "load:    %d tensors from %s; the run %s\n", len(load), s.Path(), begins)
	if len(keep) > 0 {
		fmt.Fprintf(t.options.Log, "load:    %d tensors have their initial values: %s\n", len(keep), abbreviate(keep))
	}
}

// findState opens and verifies a state, given its own folder, a folder of states or the
// dump folder of a run.
func findState(path string) (*State, []Skipped, error) {
	if exists(filepath.Join(path, indexFile)) {
		s, err := OpenState(path)
		if err != nil {
			return nil, nil, err
		}
		if err := s.Verify(); err != nil {
			s.Close()
			return nil, nil, err
		}
		return s, nil, nil
	}
	folder := StateFolder{Path: path}
	if exists(filepath.Join(path, ConfigFile)) {
		var err error
		if folder, _, err = runStates(path); err != nil {
			return nil, nil, err
		}
	}
	s, skipped, err := folder.LoadLatest()
	if errors.Is(err, ErrNoState) {
		err = fmt.Errorf("%w; give the dump folder of a run that has saved, its folder of states or one of these", err)
	}
	return s, skipped, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// selectTensors divides the tensors of the model, each a list of parts, into those to load and the names of
// those that keep their initial values. Both sides must have what is to be loaded.
func (c StateConfig) selectTensors(s *State, model [][]part) (load [][]part, keep []string, err error) {
	ours := map[string]bool{}
	for _, parts := range model {
		ours[parts[0].Name] = true
	}
	names := slices.Collect(maps.Keys(ours))
	var extra []string
	for _, in := range s.Tensors() {
		if !ours[in.Name] {
			names = append(names, in.Name)
			extra = append(extra, in.Name)
		}
	}
	wanted, err := c.wanted(names)
	if err != nil {
		return nil, nil, err
	}
	var missing []string
	var unfit []error
	for _, parts := range model {
		t := parts[0]
		in, ok := s.Lookup(t.Name)
		switch {
		case !wanted(t.Name):
			keep = append(keep, t.Name)
		case !ok:
			missing = append(missing, t.Name)
		case in.DType != t.DType || !slices.Equal(in.Shape, t.global):
			unfit = append(unfit, fmt.Errorf("%s is %v%v there, the model needs %v%v", t.Name, in.DType, in.Shape, t.DType, t.global))
		default:
			load = append(load, parts)
		}
	}
	extra = slices.DeleteFunc(extra, func(name string) bool { return !wanted(name) })
	const fix = "exclude them with state.exclude_from_loading or use the config it was trained with"
	fail := func(format string, args ...any) error {
		return fmt.Errorf("train: state: %s: %s; %s", s.Path(), fmt.Sprintf(format, args...), fix)
	}
	var errs []error
	if len(missing) > 0 {
		errs = append(errs, fail("does not hold %d tensors that the model has: %s", len(missing), abbreviate(missing)))
	}
	if len(extra) > 0 {
		errs = append(errs, fail("holds %d tensors that the model does not have: %s", len(extra), abbreviate(extra)))
	}
	if len(unfit) > 0 {
		errs = append(errs, fail("%d tensors do not fit: %s", len(unfit), abbreviate(unfit)))
	}
	if len(errs) == 0 && len(load) == 0 {
		errs = append(errs, fmt.Errorf("train: state: %s: nothing of it is to be loaded; shorten state.exclude_from_loading", s.Path()))
	}
	return load, keep, errors.Join(errs...)
}

// wanted returns what decides by its name whether a tensor is loaded. A pattern that
// matches none of the names is an error.
func (c StateConfig) wanted(names []string) (func(name string) bool, error) {
	only, err := parsePatterns("state.load_only", c.LoadOnly, names)
	if err != nil {
		return nil, err
	}
	exclude, err := parsePatterns("state.exclude_from_loading", c.ExcludeFromLoading, names)
	if err != nil {
		return nil, err
	}
	return func(name string) bool {
		if c.InitialLoadModelOnly && !isModelTensor(name) {
			return false
		}
		return (len(only) == 0 || matchAny(only, name)) && !matchAny(exclude, name)
	}, nil
}

// isModelTensor tells what is part of the model from what an optimizer step keeps for it:
// moments and averages.
func isModelTensor(name string) bool {
	return !strings.HasPrefix(name, "optimizer.") && !strings.HasPrefix(name, "ema.")
}

func parsePatterns(key string, texts, names []string) ([]pattern.Pattern, error) {
	var list []pattern.Pattern
	for _, text := range texts {
		p, err := pattern.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("train: config: %s: %w", key, err)
		}
		one := []pattern.Pattern{p}
		if !slices.ContainsFunc(names, func(name string) bool { return matchAny(one, name) }) {
			fix := "remove it"
			if near := p.Near(names); len(near) > 0 {
				fix = "near names are " + quote(near...)
			}
			return nil, fmt.Errorf("train: config: %s: %q matches no tensor of the model or the state; %s", key, text, fix)
		}
		list = append(list, p)
	}
	return list, nil
}

func matchAny(patterns []pattern.Pattern, name string) bool {
	return slices.ContainsFunc(patterns, func(p pattern.Pattern) bool {
		matched, _ := p.Match(name)
		return matched
	})
}
