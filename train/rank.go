package train

import (
	"context"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
)

// rank is one member of the job: its part of the parameters, its Programs and its
// sequences of every batch. Ranks of the backend local live in one process and share
// the device.
type rank struct {
	index    int
	config   Config
	model    Model
	group    collective.Group // nil for a rank alone
	store    *graph.Store
	loader   *data.Loader
	batches  []data.Batch // the microbatches of a step
	programs *programs
	machines machines
	warnings []string

	loss, gradNorm float64 // of the last step; the loss is this rank's part
	peak           int64   // most bytes alive in the arena since the last report
}

// machines run the programs of the same names.
type machines struct {
	first, more, evaluate *microbatchMachine
	norm, update          *graph.Machine
	lr                    []float64 // host memory of update's learning rate
}

// localGroups returns this process's end of the group for every rank, a nil one for a
// single rank.
func localGroups(c ParallelismConfig) ([]collective.Group, error) {
	if c.ExpertParallelDegree == 1 {
		return []collective.Group{nil}, nil
	}
	return local.New(c.ExpertParallelDegree, local.Options{Name: "expert"})
}

// newStore returns the Store of a rank.
func newStore(dev device.Device, c Config, index int) *graph.Store {
	o := graph.StoreOptions{Seed: uint64(c.Training.Seed)}
	if n := c.Parallelism.ExpertParallelDegree; n > 1 {
		o.Layout = moe.ExpertLayout{Rank: index, Ranks: n}
	}
	return graph.NewStore(dev, o)
}

// newRank opens the data of a rank and compiles its Programs.
func newRank(ctx context.Context, t *Trainer, index int, g collective.Group) (*rank, error) {
	dev := t.device
	if t.options.perRank != nil {
		dev = t.options.perRank(dev)
	}
	r := &rank{index: index, config: t.config, group: g, store: newStore(dev, t.config, index)}
	ranks := t.config.Parallelism.ExpertParallelDegree
	var err error
	if r.loader, err = t.data.loader(ctx, t.config.Training, index, ranks); err != nil {
		return nil, err
	}
	r.batches = make([]data.Batch, t.config.Training.Microbatches())
	c, err := newCompiler(t.config, t.options.Model, r.store, g)
	if err != nil {
		return nil, err
	}
	r.model = c.model
	r.programs, r.warnings, err = c.compile()
	return r, err
}

// allocate makes the machines, the one with the largest arena first.
func (r *rank) allocate() error {
	p, m := r.programs, &r.machines
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

func (r *rank) close() error {
	var first error
	for _, m := range r.machines.all() {
		if err := m.Close(); err != nil && first == nil {
			first = err
		}
	}
	r.machines = machines{}
	if err := r.store.Close(); err != nil && first == nil {
		first = err
	}
	return first
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

// fetch reads the microbatches of a step and counts their tokens.
func (r *rank) fetch(ctx context.Context, s *StepResult) error {
	for i := range r.batches {
		if err := r.loader.Next(ctx, &r.batches[i]); err != nil {
			return err
		}
		s.Tokens += len(r.batches[i].Tokens)
		s.Valid += r.batches[i].Valid
	}
	return nil
}

// step makes this rank's part of an optimizer step over valid labels.
func (r *rank) step(ctx context.Context, step, valid int, lr float64) error {
	if err := r.accumulate(ctx, step, 1/float64(valid)); err != nil {
		return err
	}
	if err := finite("loss", r.loss); err != nil {
		return err
	}
	options := graph.RunOptions{Step: step}
	if err := r.machines.norm.Run(ctx, options); err != nil {
		return err
	}
	r.gradNorm = r.machines.norm.Scalar("grad_norm")
	if err := finite("grad_norm", r.gradNorm); err != nil {
		return err
	}
	r.machines.lr[0] = lr
	return r.machines.update.Run(ctx, options)
}

// accumulate runs forward and backward on all microbatches.
func (r *rank) accumulate(ctx context.Context, step int, scale float64) error {
	r.loss = 0
	m := r.machines.first
	for i := range r.batches {
		m.feed(&r.batches[i], scale)
		if err := m.Run(ctx, graph.RunOptions{Step: step, Microbatch: i}); err != nil {
			return nonFiniteHint(err)
		}
		r.loss += m.loss()
		if m.dynamic {
			r.peak = max(r.peak, m.Program().Memory(m.Counts()).Peak)
		}
		m = r.machines.more
	}
	return nil
}
