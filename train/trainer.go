package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/atomicfile"
)

// Options of a Trainer that are not part of the run's config; the zero value
// works.
type Options struct {
	// Log receives the lines for people; nil discards them. Below them Run shows its
	// progress if Log is a terminal.
	Log io.Writer
	// Model to train in place of the one the config names.
	Model Model
	// Optimizer of every parameter in place of those the config names. Learning rate,
	// schedule, clipping and moving average are the config's; groups are refused.
	Optimizer Optimizer
	// Dataset in place of the text that the config names.
	Dataset *Dataset
	// Loss in place of cross-entropy, for the models of Lethe and those that heed
	// Inputs.Loss. What is then reported as loss is this one.
	Loss Loss
	// Device to train on; nil is the CPU with training.threads threads. The
	// Trainer closes only a device of its own.
	Device device.Device
	// Hooks are called by Run.
	Hooks []Hook

	// terminalWidth makes Log a terminal of that width, for tests.
	terminalWidth func() int
	// perRank puts something between a rank and the device.
	perRank func(device.Device) device.Device
	// memory this process may use, in bytes; 0 is what the system says.
	memory int64
	// stateFS is what states are written through; nil is the operating system.
	stateFS atomicfile.FS
}

// ConfigError is an error that a change of the config, the data or the command
// line mends, as opposed to one of the run.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Trainer trains one model. It is used by one goroutine. After an error of Step
// it can only be closed: the data loader may be ahead of the parameters.
type Trainer struct {
	config  Config
	options Options
	model   Model
	device  device.Device
	data    *dataset
	layout  layout
	ranks   []*rank // those of this process
	shards  *shards
	saving  *Saving // the state that is being written, or was

	schedule Schedule
	warnings []string // doubts about the config and the model
	step     int      // optimizer steps done
	saved    int      // step of the newest state on disk, −1 if there is none
	newest   int      // step of the newest folder of a state that this run knows of, −1 if none
	failed   error    // of an earlier step
}

// New builds the model, makes the plan, compiles the Programs, allocates their
// memory and, if the config says so and there is one, loads the newest state.
func New(ctx context.Context, c Config, o Options) (*Trainer, error) {
	if err := c.Validate(); err != nil {
		return nil, &ConfigError{err}
	}
	t := &Trainer{config: c, options: o, device: o.Device, layout: newLayout(c.Parallelism), saved: -1, newest: -1}
	if t.options.Log == nil {
		t.options.Log = io.Discard
	}
	if err := t.open(ctx); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Trainer) open(ctx context.Context) error {
	if t.device == nil {
		d, err := cpu.New(cpu.Options{Workers: t.config.Training.Threads})
		if err != nil {
			return &ConfigError{err}
		}
		t.device = d
	}
	if err := t.openData(ctx); err != nil {
		return &ConfigError{err}
	}
	if err := t.openRanks(ctx); err != nil {
		return &ConfigError{err}
	}
	if err := t.fit(); err != nil {
		return &ConfigError{err}
	}
	for _, r := range t.ranks {
		if err := r.allocate(); err != nil {
			return err
		}
	}
	t.shards = newShards(t.ranks, t.layout)
	if s := t.config.State; s.Enable {
		if err := t.shards.reserve(s.async()); err != nil {
			return err
		}
	}
	return t.start()
}

func (t *Trainer) openData(ctx context.Context) error {
	var err error
	if t.data, err = openDataset(ctx, t.config, t.options.Dataset); err != nil {
		return err
	}
	if !t.config.Validation.Enable {
		return nil
	}
	heldOut, err := t.data.heldOutBatches(ctx, t.config.Training, 0, 1)
	if err != nil {
		return err
	}
	return heldOut.Close()
}

// openRanks compiles the Programs of every rank.
func (t *Trainer) openRanks(ctx context.Context) error {
	connected, err := t.layout.localEnds()
	if err != nil {
		return err
	}
	for i, e := range connected {
		var f *flight.Recorder
		if len(connected) > 1 {
			f = flight.New(flight.Options{Rank: i, Ranks: len(connected)})
			e = t.layout.recorded(f, i, e)
		}
		r, err := newRank(ctx, t, i, e, f)
		if err != nil {
			return err
		}
		t.ranks = append(t.ranks, r)
	}
	first := t.ranks[0]
	t.model = first.model
	if have, want := t.model.Vocab(), t.data.vocab(); have < want {
		return fmt.Errorf("train: %s has a vocabulary of %d, the tokenizer %q needs %d; choose another model.flavor", t.model.Name(), have, t.data.tokenizer.Name(), want)
	}
	var doubts []string
	t.schedule, doubts = NewSchedule(t.config.LRScheduler, t.config.Training.Steps)
	t.warnings = append(doubts, first.warnings...)
	return nil
}

// Close waits for a state that is being written and frees the memory of the run.
func (t *Trainer) Close() error {
	t.waitForSave()
	if t.shards != nil {
		t.shards.close()
	}
	var errs []error
	for _, r := range t.ranks {
		errs = append(errs, r.close())
	}
	if t.device != nil && t.options.Device == nil {
		errs = append(errs, t.device.Close())
	}
	return errors.Join(errs...)
}

// Config of the run.
func (t *Trainer) Config() Config { return t.config }

// Model that is trained.
func (t *Trainer) Model() Model { return t.model }

// Store holds the parameters and the optimizer's moments of the first rank.
func (t *Trainer) Store() *graph.Store { return t.ranks[0].store }

// Steps is the number of optimizer steps that are done.
func (t *Trainer) Steps() int { return t.step }

// StepResult is what a step reports of itself.
type StepResult struct {
	// Loss is the mean cross-entropy over the valid labels of the step, in nats,
	// plus what other losses the model has. The microbatches' parts are added in
	// float64, in order, then the ranks', and the sum is rounded to the trained dtype.
	Loss float64
	// GradNorm is the L2 norm of the gradient before clipping.
	GradNorm float64
	// LearningRate that was applied where no group has its own.
	LearningRate float64
	// Tokens that went through the model, padding included; Valid of them had a
	// label, Padding of them were no text.
	Tokens, Valid, Padding int
}

// Step makes one optimizer step. A loss or gradient norm that is not finite is
// an error that wraps graph.ErrNonFinite, and neither parameters nor moments are
// changed then.
func (t *Trainer) Step(ctx context.Context) (StepResult, error) {
	if t.failed != nil {
		return StepResult{}, fmt.Errorf("train: an earlier step failed: %w", t.failed)
	}
	r, err := t.makeStep(ctx)
	if err != nil {
		t.failed = err
		return StepResult{}, t.explain(ctx, fmt.Errorf("train: step %d: %w", t.step+1, err))
	}
	t.step++
	return r, nil
}

func (t *Trainer) makeStep(ctx context.Context) (StepResult, error) {
	factor := t.schedule.Factor(t.step)
	if len(t.ranks) == 1 { // allocates nothing
		err := t.ranks[0].step(ctx, t.step+1, factor)
		return t.ranks[0].result, err
	}
	err := t.together(func(r *rank) error { return r.step(ctx, t.step+1, factor) })
	return t.ranks[0].result, err
}

// together runs f for every rank at once and returns the error that came first in the
// order of blame: that of a rank itself before those of ranks that waited for it.
func (t *Trainer) together(f func(r *rank) error) error {
	if len(t.ranks) == 1 {
		return f(t.ranks[0])
	}
	errs := make([]error, len(t.ranks))
	var running sync.WaitGroup
	for i, r := range t.ranks {
		running.Go(func() {
			if errs[i] = f(r); errs[i] != nil {
				r.ends.abort(fmt.Errorf("rank %d: %w", r.index, errs[i]))
			}
		})
	}
	running.Wait()
	var waited error
	for i, err := range errs {
		switch {
		case errors.Is(err, collective.ErrAborted):
			waited = err
		case err != nil:
			return fmt.Errorf("rank %d: %w", t.ranks[i].index, err)
		}
	}
	return waited
}

// finite refuses what would ruin the parameters.
func finite(what string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%s is %v: %w", what, v, graph.ErrNonFinite)
	}
	return nil
}
