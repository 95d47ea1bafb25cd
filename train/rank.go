package train

import (
	"context"
	"errors"
	"io"

	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/spill"
	"github.com/lethe-go/lethe/graph"
)

// rank is one member of the job: its part of the parameters, its Programs and its
// sequences of every batch. Ranks of the backend local live in one process and share
// the device.
type rank struct {
	index    int // in the job
	config   Config
	layout   layout
	model    Model
	ends     ends
	flight   *flight.Recorder // of what the ends do; nil for a rank alone
	totals   *totals
	store    *graph.Store
	disk     func(spill.Disk) spill.Disk // Options.Disk
	spill    *spill.File                 // where values are offloaded to; nil if none are
	loader   data.Batches
	batches  []data.Batch // the microbatches of a step
	programs *programs
	machines machines
	warnings []string

	result StepResult // of the last step, the same on every rank
	peak   int64      // most bytes alive in the arena since the last report

	interrupted func() bool // whether this process was told to stop; nil is never
	stopping    bool        // after the step, for some process was: the same on every rank
}

// machines run the programs of the same names.
type machines struct {
	first, more, last, evaluate *microbatchMachine
	norm, update                *graph.Machine
	rates                       [][]float64 // host memory of update's learning rates
}

// newStore returns the Store of a rank.
func newStore(dev device.Device, c Config, index int, e ends) *graph.Store {
	return graph.NewStore(dev, graph.StoreOptions{Seed: uint64(c.Training.Seed), Layout: newLayout(c.Parallelism).parameters(index, e)})
}

// newRank opens the data of a rank and compiles its Programs.
func newRank(ctx context.Context, t *Trainer, index int, e ends, f *flight.Recorder) (*rank, error) {
	dev := t.device
	if t.options.perRank != nil {
		dev = t.options.perRank(dev)
	}
	r := &rank{index: index, config: t.config, layout: t.layout, ends: e, flight: f, disk: t.options.Disk, store: newStore(dev, t.config, index, e)}
	var err error
	if r.totals, err = newTotals(t.device, e.data); err != nil {
		return nil, err
	}
	if r.loader, err = t.data.batches(ctx, t.config.Training, t.layout.dataRank(index), t.layout.dataRanks()); err != nil {
		return nil, err
	}
	r.batches = make([]data.Batch, t.config.Training.Microbatches())
	c, err := newCompiler(t.config, t.options, r.store, e)
	if err != nil {
		return nil, err
	}
	c.budget = t.budget
	r.model = c.model
	r.programs, r.warnings, err = c.compile()
	return r, err
}

// allocate makes the machines, the one with the largest arena first.
func (r *rank) allocate() error {
	p, m := r.programs, &r.machines
	err := r.openSpill()
	if err != nil {
		return err
	}
	if m.first, err = newMicrobatchMachine(p.first, p.check); err != nil {
		return err
	}
	for _, x := range []struct {
		machine **microbatchMachine
		program *graph.Program
	}{{&m.more, p.more}, {&m.last, p.last}, {&m.evaluate, p.evaluate}} {
		if x.program == nil {
			continue
		}
		if *x.machine, err = newMicrobatchMachine(x.program, p.check); err != nil {
			return err
		}
	}
	if m.norm, err = graph.NewMachine(p.norm); err != nil {
		return err
	}
	if m.update, err = graph.NewMachine(p.update); err != nil {
		return err
	}
	for _, x := range p.rates {
		m.rates = append(m.rates, device.Elements[float64](m.update.Input(x.input)))
	}
	if r.config.Metrics.NaNWatch {
		return r.watch(m.all()...)
	}
	return nil
}

func (r *rank) close() error {
	var first error
	for _, m := range r.machines.all() {
		if err := m.Close(); err != nil && first == nil {
			first = err
		}
	}
	r.machines = machines{}
	if r.loader != nil {
		if err := r.loader.Close(); err != nil && first == nil {
			first = err
		}
	}
	if r.totals != nil {
		r.totals.close()
	}
	if err := r.store.Close(); err != nil && first == nil {
		first = err
	}
	if r.spill != nil {
		if err := r.spill.Close(); err != nil && first == nil {
			first = err
		}
		r.spill = nil
	}
	return first
}

func (m *machines) all() []*graph.Machine {
	var all []*graph.Machine
	for _, x := range []*microbatchMachine{m.first, m.more, m.last, m.evaluate} {
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

// step makes this rank's part of an optimizer step, with the schedule's factor on
// learning rates.
func (r *rank) step(ctx context.Context, step int, factor float64) error {
	s := &r.result
	*s = StepResult{LearningRate: r.config.Optimizer.LR * factor}
	// Every microbatch is divided by the labels of the whole step, so all of them
	// are fetched before the first runs.
	differs, err := r.fetch(ctx, s)
	if err != nil {
		return err
	}
	if err := r.totals.addCounts(ctx, &s.Tokens, &s.Valid, &s.Padding, &differs); err != nil {
		return err
	}
	if differs != 0 {
		return &common{errors.New("ranks that compute together have read different batches; a dataset must make the same ones each time that it is opened for a rank")}
	}
	if s.Valid == 0 {
		return &common{errors.New("no token of the step has a label; use longer documents or a larger batch")}
	}
	if err := r.accumulate(ctx, step); err != nil {
		return err
	}
	stopping := 0.0
	if r.interrupted != nil && r.interrupted() {
		stopping = 1
	}
	if err := r.totals.addSums(ctx, &s.Loss, &stopping); err != nil {
		return err
	}
	r.stopping = stopping > 0
	if r.config.Training.DType == "float32" {
		s.Loss = float64(float32(s.Loss))
	}
	if err := finite("loss", s.Loss); err != nil {
		return err
	}
	if err := r.update(ctx, step, factor); err != nil {
		return err
	}
	if n := r.config.Comm.CheckReplicas; n > 0 && step%n == 0 {
		return r.checkReplicas(ctx, r.store.Device())
	}
	return nil
}

// counts reports whether this rank counts its tokens: of those that have the same sequences
// the first does.
func (r *rank) counts() bool { return r.layout.tensorPlace(r.index) == 0 }

// fetch reads the microbatches of a step and counts their tokens. differs is layout.differs of
// them.
func (r *rank) fetch(ctx context.Context, s *StepResult) (differs int, err error) {
	read := uint64(noFingerprint)
	for i := range r.batches {
		b, c := &r.batches[i], r.config.Training
		if err := r.loader.Next(ctx, b); err == io.EOF {
			return 0, errors.New("the data has ended; give more of it, or set training.steps to the steps that are done")
		} else if err != nil {
			return 0, err
		}
		if err := b.Check(c.LocalBatchSize, c.SeqLen, r.model.Vocab()); err != nil {
			return 0, err
		}
		if r.layout.tensors > 1 {
			read = fingerprint(read, b)
		}
		if !r.counts() {
			continue
		}
		s.Tokens += len(b.Tokens)
		s.Valid += b.Valid
		s.Padding += b.Padding
	}
	return r.layout.differs(r.index, read), nil
}

// update makes the step that the gradients ask for, if their norm is finite.
func (r *rank) update(ctx context.Context, step int, factor float64) error {
	options := graph.RunOptions{Step: step}
	if err := r.machines.norm.Run(ctx, options); err != nil {
		return err
	}
	r.result.GradNorm = r.machines.norm.Scalar("grad_norm")
	if err := finite("grad_norm", r.result.GradNorm); err != nil {
		return err
	}
	for i, x := range r.programs.rates {
		r.machines.rates[i][0] = x.peak * factor
	}
	return r.machines.update.Run(ctx, options)
}

// accumulate runs forward and backward on all microbatches.
func (r *rank) accumulate(ctx context.Context, step int) error {
	r.result.Loss = 0
	scale := 1 / float64(r.result.Valid)
	for i := range r.batches {
		m := r.machines.of(i, len(r.batches))
		m.feed(&r.batches[i], scale)
		if err := m.Run(ctx, graph.RunOptions{Step: step, Microbatch: r.microbatch(i)}); err != nil && !r.onlyLoss(err) {
			return err
		}
		r.result.Loss += m.loss()
		if m.dynamic {
			r.peak = max(r.peak, m.Program().Memory(m.Counts()).Peak)
		}
	}
	return nil
}

// onlyLoss reports whether a run was complete but for its loss, which is not finite. Nor is
// the sum then, which tells the other ranks.
func (r *rank) onlyLoss(err error) bool {
	var found *graph.NonFiniteError
	return r.ends.data != nil && errors.Is(err, graph.ErrNonFinite) && !errors.As(err, &found)
}

// of is the machine that runs microbatch i of n.
func (m *machines) of(i, n int) *microbatchMachine {
	switch {
	case i == 0:
		return m.first
	case i == n-1 && m.last != nil:
		return m.last
	}
	return m.more
}

// microbatch is the number of this rank's i-th among those of all data ranks, in the order of
// the data: random numbers do not depend on the layout.
func (r *rank) microbatch(i int) int { return i*r.layout.dataRanks() + r.layout.dataRank(r.index) }
