package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

// Options of a Trainer that are not part of the run's config; the zero value
// works.
type Options struct {
	// Log receives the lines for people; nil discards them.
	Log io.Writer
	// Model to train in place of the one the config names.
	Model Model
	// Device to train on; nil is the CPU with training.threads threads. The
	// Trainer closes only a device of its own.
	Device device.Device
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
	store   *graph.Store
	data    *dataset
	loader  *data.Loader
	batches []data.Batch // the microbatches of a step

	programs *programs
	schedule Schedule
	warnings []string // doubts about the config and the model
	machines machines
	step     int   // optimizer steps done
	saved    int   // step of the newest state on disk, −1 if there is none
	failed   error // of an earlier step
}

// machines run the programs of the same names.
type machines struct {
	first, more, evaluate *microbatchMachine
	norm, update          *graph.Machine
	lr                    []float64 // host memory of update's learning rate
}

// New builds the model, makes the plan, compiles the Programs, allocates their
// memory and, if the config says so and there is one, loads the newest state.
func New(ctx context.Context, c Config, o Options) (*Trainer, error) {
	if err := c.Validate(); err != nil {
		return nil, &ConfigError{err}
	}
	t := &Trainer{config: c, options: o, device: o.Device, saved: -1}
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
	t.store = graph.NewStore(t.device, graph.StoreOptions{Seed: uint64(t.config.Training.Seed)})
	if err := t.openData(ctx); err != nil {
		return &ConfigError{err}
	}
	if err := t.compile(); err != nil {
		return &ConfigError{err}
	}
	if err := t.allocate(); err != nil {
		return err
	}
	return t.resume()
}

func (t *Trainer) openData(ctx context.Context) error {
	var err error
	if t.data, err = openDataset(ctx, t.config.Training.Dataset); err != nil {
		return err
	}
	if t.loader, err = t.data.loader(ctx, t.config.Training); err != nil {
		return err
	}
	t.batches = make([]data.Batch, t.config.Training.Microbatches())
	if t.config.Validation.Enable {
		_, err = t.data.heldOutLoader(ctx, t.config.Training)
	}
	return err
}

func (t *Trainer) compile() error {
	c, err := newCompiler(t.config, t.options.Model, t.store)
	if err != nil {
		return err
	}
	t.model = c.model
	if have, want := t.model.Vocab(), t.data.tokenizer.Vocab(); have < want {
		return fmt.Errorf("train: %s has a vocabulary of %d, the tokenizer %q needs %d; choose another model.flavor", t.model.Name(), have, t.data.tokenizer.Name(), want)
	}
	var warnings []string
	t.schedule, t.warnings = NewSchedule(t.config.LRScheduler, t.config.Training.Steps)
	t.programs, warnings, err = c.compile()
	t.warnings = append(t.warnings, warnings...)
	return err
}

// allocate makes the machines, the one with the largest arena first.
func (t *Trainer) allocate() error {
	p, m := t.programs, &t.machines
	var err error
	if m.first, err = newMicrobatchMachine(p.first); err != nil {
		return err
	}
	if p.more != nil {
		if m.more, err = newMicrobatchMachine(p.more); err != nil {
			return err
		}
	}
	if p.evaluate != nil {
		if m.evaluate, err = newMicrobatchMachine(p.evaluate); err != nil {
			return err
		}
	}
	if m.norm, err = graph.NewMachine(p.norm); err != nil {
		return err
	}
	if m.update, err = graph.NewMachine(p.update); err != nil {
		return err
	}
	m.lr = device.Elements[float64](m.update.Input("lr"))
	return nil
}

// Close frees the memory of the run.
func (t *Trainer) Close() error {
	var errs []error
	for _, m := range t.machines.all() {
		errs = append(errs, m.Close())
	}
	t.machines = machines{}
	if t.store != nil {
		errs = append(errs, t.store.Close())
	}
	if t.device != nil && t.options.Device == nil {
		errs = append(errs, t.device.Close())
	}
	return errors.Join(errs...)
}

func (m *machines) all() []*graph.Machine {
	var all []*graph.Machine
	for _, x := range []*microbatchMachine{m.first, m.more, m.evaluate} {
		if x != nil {
			all = append(all, x.Machine)
		}
	}
	for _, x := range []*graph.Machine{m.norm, m.update} {
		if x != nil {
			all = append(all, x)
		}
	}
	return all
}

// Config of the run.
func (t *Trainer) Config() Config { return t.config }

// Model that is trained.
func (t *Trainer) Model() Model { return t.model }

// Store holds the parameters and the optimizer's moments.
func (t *Trainer) Store() *graph.Store { return t.store }

// Steps is the number of optimizer steps that are done.
func (t *Trainer) Steps() int { return t.step }

// StepResult is what a step reports of itself.
type StepResult struct {
	// Loss is the mean cross-entropy over the valid labels of the step, in nats,
	// plus what other losses the model has. The microbatches' parts are added in
	// float64, in order, and the sum is rounded to the trained dtype.
	Loss float64
	// GradNorm is the L2 norm of the gradient before clipping.
	GradNorm float64
	// LearningRate that was applied.
	LearningRate float64
	// Tokens that went through the model, padding included; Valid of them had a
	// label.
	Tokens, Valid int
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
		return StepResult{}, fmt.Errorf("train: step %d: %w", t.step+1, err)
	}
	t.step++
	return r, nil
}

func (t *Trainer) makeStep(ctx context.Context) (StepResult, error) {
	r := StepResult{LearningRate: t.config.Optimizer.LR * t.schedule.Factor(t.step)}
	// Every microbatch is divided by the labels of the whole step, so all of them
	// are fetched before the first runs.
	for i := range t.batches {
		if err := t.loader.Next(ctx, &t.batches[i]); err != nil {
			return r, err
		}
		r.Tokens += len(t.batches[i].Tokens)
		r.Valid += t.batches[i].Valid
	}
	if r.Valid == 0 {
		return r, errors.New("no token of the step has a label; use longer documents or a larger batch")
	}
	if err := t.accumulate(ctx, &r); err != nil {
		return r, err
	}
	options := graph.RunOptions{Step: t.step + 1}
	if err := t.machines.norm.Run(ctx, options); err != nil {
		return r, err
	}
	r.GradNorm = t.machines.norm.Scalar("grad_norm")
	if err := finite("grad_norm", r.GradNorm); err != nil {
		return r, err
	}
	t.machines.lr[0] = r.LearningRate
	return r, t.machines.update.Run(ctx, options)
}

// accumulate runs forward and backward on all microbatches.
func (t *Trainer) accumulate(ctx context.Context, r *StepResult) error {
	scale := 1 / float64(r.Valid)
	m := t.machines.first
	for i := range t.batches {
		m.feed(&t.batches[i], scale)
		if err := m.Run(ctx, graph.RunOptions{Step: t.step + 1, Microbatch: i}); err != nil {
			return nonFiniteHint(err)
		}
		r.Loss += m.loss()
		m = t.machines.more
	}
	if t.config.Training.DType == "float32" {
		r.Loss = float64(float32(r.Loss))
	}
	return finite("loss", r.Loss)
}

// finite refuses what would ruin the parameters.
func finite(what string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nonFiniteHint(fmt.Errorf("%s is %v: %w", what, v, graph.ErrNonFinite))
	}
	return nil
}

func nonFiniteHint(err error) error {
	if !errors.Is(err, graph.ErrNonFinite) {
		return err
	}
	return fmt.Errorf("%w; the parameters were not updated and saved states are intact: resume with a lower optimizer.lr or training.max_norm", err)
}
