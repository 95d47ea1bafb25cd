package train

import (
	"context"
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/instrument"
	"github.com/lethe-go/lethe/graph"
)

// Measured holds the peak of one Program against what was seen of it.
type Measured struct {
	Mode    string
	Rank    int
	Program string
	// Predicted is the planned peak of the arena, in bytes, for the row counts of the
	// measured run; Peak is what the instrument saw.
	Predicted, Peak int64
	// PredictedCarried and Carried are the same of the bytes that are carried from forward to
	// backward in the arena: what was saved, and what the instrument cannot tell from it,
	// inputs that backward reads and what is on its way between ranks.
	PredictedCarried, Carried int64
	// Differs is the first node at whose step another number of bytes is alive than predicted,
	// "" if there is none.
	Differs string
	// SameLoss is whether the loss of a repetition with all dead memory poisoned is the
	// same, bit for bit.
	SameLoss bool
}

// MeasurePeaks trains a few steps of a config under a mode on instrumented devices,
// which see the bytes that kernels touch and nothing of the plan, and returns the peak
// of every Program of every rank. Nothing is saved.
func MeasurePeaks(ctx context.Context, c Config, mode string, o Options) ([]Measured, error) {
	c.ActivationCheckpoint.Mode = mode
	o.initial = true                     // with the memory that saving a state takes, which counts in budgets
	c.Parallelism.Backend = localBackend // it is about memory, not about the way between ranks
	o.perRank = func(d device.Device) device.Device { return instrument.Wrap(d) }
	t, err := New(ctx, c, o)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if _, err := t.Step(ctx); err != nil { // fills the inputs
		return nil, err
	}
	parts := make([][]Measured, t.layout.ranks())
	err = t.together(ctx, func(ctx context.Context, r *rank) (err error) {
		parts[r.index], err = r.measure(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("train: measuring mode %s: %w", mode, err)
	}
	var all []Measured
	for _, p := range parts {
		for _, m := range p {
			m.Mode = mode
			all = append(all, m)
		}
	}
	return all, nil
}

// measure runs every Program of the rank twice: recorded, then poisoned.
func (r *rank) measure(ctx context.Context) ([]Measured, error) {
	m := &r.machines
	if m.evaluate != nil {
		m.evaluate.feed(&r.batches[0], 1)
	}
	var all []Measured
	for _, x := range []struct {
		machine *graph.Machine
		losses  *microbatchMachine
	}{
		{m.first.Machine, m.first}, {machineOf(m.more), m.more}, {machineOf(m.last), m.last},
		{m.norm, nil}, {m.update, nil}, {machineOf(m.evaluate), m.evaluate},
	} {
		if x.machine == nil {
			continue
		}
		o := graph.RunOptions{Step: 2}
		seen, err := graph.Measure(ctx, x.machine, o)
		if err != nil {
			return nil, err
		}
		p, counts := x.machine.Program(), x.machine.Counts()
		one := Measured{Rank: r.index, Program: r.programs.name(p), Predicted: p.Memory(counts).Peak, Peak: seen.Peak, SameLoss: true,
			PredictedCarried: p.Carried(counts), Carried: seen.Across(p.Boundary()), Differs: differs(p, p.LiveBytes(counts), seen.Live)}
		var before float64
		if x.losses != nil {
			before = x.losses.loss()
		}
		if err := x.machine.Run(ctx, o); err != nil {
			return nil, err
		}
		if x.losses != nil {
			one.SameLoss = x.losses.loss() == before
		}
		all = append(all, one)
	}
	return all, nil
}

// differs names the first step at which predicted and measured bytes differ. What follows the
// last access that was measured is nothing.
func differs(p *graph.Program, predicted, measured []int64) string {
	for i, want := range predicted {
		have := int64(0)
		if i < len(measured) {
			have = measured[i]
		}
		if have == want {
			continue
		}
		name := "the program's border"
		if i > 0 && i <= len(p.Steps) {
			name = p.Steps[i-1].Node.Name
		}
		return fmt.Sprintf("%s: %d bytes, predicted %d", name, have, want)
	}
	return ""
}

func machineOf(m *microbatchMachine) *graph.Machine {
	if m == nil {
		return nil
	}
	return m.Machine
}
