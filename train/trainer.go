package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/spill"
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
	// Link between ranks of one process, for experiments; the zero value is their memory.
	Link local.Link
	// Disk puts something between a rank and the file that it offloads to, for experiments,
	// such as spill.Limit does; nil is nothing.
	Disk func(spill.Disk) spill.Disk
	// Costs of running operations again that activation_checkpoint.mode "budget" and plan
	// reports reckon with, the same on all ranks. nil has a run in that mode measure them;
	// a plan report takes what was measured on this machine, or checkpoint.DefaultCosts. In
	// other modes they tell when copies to and from a file set out.
	Costs checkpoint.Costs
	// CostFolder is where measured costs are kept; empty is lethe/costs in the user's folder
	// of caches.
	CostFolder string
	// Hooks are called by Run.
	Hooks []Hook
	// World is MPI where the program has started it, for parallelism.backend "mpi". nil has
	// New start it, which can be done once in a process, and Close end it.
	World *mpi.World
	// Stuck is called if a rank cannot be stopped, because MPI or something that the rank
	// waits for hangs: only the end of the process helps. nil leaves it at that.
	Stuck func(error)

	// initial has a run begin with initial values, whatever states there are.
	initial bool
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
	config      Config
	options     Options
	model       Model
	device      device.Device
	closeDevice func() error // if it is open
	data        *dataset
	layout      layout
	world       *world  // nil before the ranks have met
	budget      *budget // that the ranks plan within; nil unless that is the mode
	ranks       []*rank // those of this process
	shards      *shards
	saving      *Saving // the state that is being written, or was

	schedule Schedule
	costNote string   // how the costs of the budget came about
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
		t.abort(err)
		t.Close()
		return nil, err
	}
	return t, nil
}

// abort has the other ranks know that this process has failed.
func (t *Trainer) abort(err error) {
	if t.world != nil && !isCommon(err) {
		t.world.abort(fmt.Errorf("rank %d: %w", t.world.seats[0].rank, err))
	}
}

func (t *Trainer) open(ctx context.Context) error {
	var err error
	if t.device, t.closeDevice, err = openDevice(t.options.Device, t.config.Training.Threads); err != nil {
		return &ConfigError{err}
	}
	if t.world, err = joinWorld(ctx, t.config, t.options, t.device); err != nil {
		return err
	}
	if !t.world.leads() {
		t.options.Log = io.Discard
	}
	if err := t.openData(ctx); err != nil {
		return &ConfigError{err}
	}
	if err := t.openBudget(ctx); err != nil {
		return &ConfigError{err}
	}
	if err := t.openRanks(ctx); err != nil {
		return &ConfigError{err}
	}
	t.shards = newShards(t.ranks, t.layout, !t.world.several())
	if err := t.fit(); err != nil {
		return &ConfigError{t.refused(err)}
	}
	if err := t.allocate(); err != nil {
		return t.refused(err)
	}
	if err := t.start(); err != nil {
		return err
	}
	return t.agree(ctx)
}

// allocate takes all memory of the run.
func (t *Trainer) allocate() error {
	for _, r := range t.ranks {
		if err := r.allocate(); err != nil {
			return err
		}
	}
	if s := t.config.State; s.Enable {
		return t.shards.reserve(s.async())
	}
	return nil
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
	for _, s := range t.world.seats {
		r, err := newRank(ctx, t, s.rank, s.ends, s.flight)
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
	t.warnings = append(t.warnings, append(doubts, first.warnings...)...)
	return nil
}

// agree holds what the ranks are about to do against each other.
func (t *Trainer) agree(ctx context.Context) error {
	if t.world.ranks() == 1 {
		return nil
	}
	err := t.together(ctx, func(ctx context.Context, r *rank) error {
		list, err := r.facts(ctx, t)
		if err != nil {
			return err
		}
		return agree(ctx, t.device, r.ends.data, list...)
	})
	if errors.Is(err, ErrDisagree) {
		return &ConfigError{err}
	}
	return err
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
	if t.world != nil {
		errs = append(errs, t.world.close())
	}
	if t.closeDevice != nil {
		errs = append(errs, t.closeDevice())
	}
	return errors.Join(errs...)
}

// Config of the run.
func (t *Trainer) Config() Config { return t.config }

// Leads reports whether this process is the one of the job that reports: it writes to Log
// and to metrics.jsonl. A process alone is.
func (t *Trainer) Leads() bool { return t.world.leads() }

// Record writes what the ranks of this process have done last, because of the cause, into
// the folder flight of job.dump_folder. It may be called at any time, on any goroutine; a
// rank alone has nothing to tell.
func (t *Trainer) Record(cause error) error { return t.world.record(cause) }

// Model that is trained.
func (t *Trainer) Model() Model { return t.model }

// Store holds the parameters and the optimizer's moments of the first rank.
func (t *Trainer) Store() *graph.Store { return t.ranks[0].store }

// Steps is the number of optimizer steps that are done.
func (t *Trainer) Steps() int { return t.step }

// Memory that the last microbatch took on each rank of this process, for the rows that it
// had.
func (t *Trainer) Memory() []graph.Memory {
	var list []graph.Memory
	for _, r := range t.ranks {
		m := r.machines.of(len(r.batches)-1, len(r.batches))
		list = append(list, m.Program().Memory(m.Counts()))
	}
	return list
}

// PredictedBytes is the most that a rank holds in a step, with as many rows as can come:
// variables, the copy of the state, buffers to offload, and what lives in the arena. A
// budget bounds it.
func (t *Trainer) PredictedBytes() int64 {
	return t.Store().Bytes() + t.stagingBytes() + t.ringBytes() + t.ranks[0].programs.usage(1).peakBytes
}

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
	if t.step++; t.world.timeout != t.config.Comm.TrainTimeout {
		t.world.setTimeout(t.config.Comm.TrainTimeout)
	}
	return r, nil
}

func (t *Trainer) makeStep(ctx context.Context) (StepResult, error) {
	factor := t.schedule.Factor(t.step)
	if len(t.ranks) == 1 { // allocates nothing
		r := t.ranks[0]
		err := r.step(ctx, t.step+1, factor)
		return r.result, r.fail(err)
	}
	err := t.together(ctx, func(ctx context.Context, r *rank) error { return r.step(ctx, t.step+1, factor) })
	return t.ranks[0].result, err
}

// finite refuses what would ruin the parameters, which is the same on all ranks.
func finite(what string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return &common{fmt.Errorf("%s is %v: %w", what, v, graph.ErrNonFinite)}
	}
	return nil
}
