package train

import (
	"errors"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

// PlanRow is what one activation checkpointing mode would cost.
type PlanRow struct {
	Mode string `json:"mode"`
	// Bytes that are carried over from forward to backward of one microbatch.
	SavedBytes int64 `json:"saved_bytes"`
	// Most bytes that are alive in the arena at one time, over all Programs.
	PeakBytes int64 `json:"peak_bytes"`
	// Size of the arena: the peak and what placement loses.
	ArenaBytes int64 `json:"arena_bytes"`
	// Host memory beside the arena that activation_checkpoint.check takes.
	CheckBytes int64 `json:"check_bytes,omitempty"`
	// Floating-point operations that run a second time in one optimizer step, and
	// their share of those of its forward passes.
	RecomputedFLOPs float64 `json:"recomputed_flops"`
	RecomputedPct   float64 `json:"recomputed_pct"`
}

// PlanReport compares the modes before anything is allocated or run. With several
// ranks the figures are those of one; with experts on other ranks they are bounds,
// for how many rows a rank gets shows only as it runs.
type PlanReport struct {
	Model Model
	Rows  []PlanRow // in the order none, selective, full
	// PersistentBytes are held beside the arena in every mode: parameters,
	// gradients, optimizer state and tables.
	PersistentBytes int64
	// StateCopyBytes hold the copy of the state while it is written: 0 unless
	// state.async_mode is "async" or ranks have to bring their parts together.
	StateCopyBytes int64
	// Explanation tells for each value of the config's own mode what becomes of
	// it, and why.
	Explanation checkpoint.Report
	// Program is forward and backward of the first microbatch under the config's own
	// mode.
	Program *graph.Program
}

// PlanReportFor builds and compiles the Programs of a config under every mode. It
// allocates none of their memory, so it works for models of any size.
func PlanReportFor(c Config, o Options) (*PlanReport, error) {
	r, err := planReport(c, o)
	if err != nil {
		return nil, &ConfigError{err}
	}
	return r, nil
}

func planReport(c Config, o Options) (*PlanReport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dev := o.Device
	if dev == nil {
		own, err := cpu.New(cpu.Options{Workers: c.Training.Threads})
		if err != nil {
			return nil, err
		}
		defer own.Close()
		dev = own
	}
	r := &PlanReport{}
	for _, mode := range []string{"none", "selective", "full"} {
		of := c
		of.ActivationCheckpoint.Mode = mode
		connected, err := newLayout(c.Parallelism).localEnds(o.Link)
		if err != nil {
			return nil, err
		}
		store := newStore(dev, c, 0, connected[0])
		compiler, err := newCompiler(of, o, store, connected[0])
		if err != nil {
			return nil, err
		}
		p, _, err := compiler.compile()
		if err != nil {
			return nil, err
		}
		u := p.usage(of.Training.Microbatches())
		r.Model, r.PersistentBytes = compiler.model, store.Bytes()
		if c.State.Enable {
			s := newShards([]*rank{{store: store}}, newLayout(c.Parallelism), c.Parallelism.Backend == localBackend)
			r.StateCopyBytes = s.stagingBytes(c.State.async())
		}
		r.Rows = append(r.Rows, PlanRow{mode, u.savedBytes, u.peakBytes, u.arenaBytes, u.checkBytes, u.recomputedFLOPs, u.recomputedPct()})
		if mode == c.ActivationCheckpoint.Mode {
			r.Program, r.Explanation = p.first, checkpoint.Explain(p.first.Graph, p.first.Plan)
		}
	}
	if len(r.Rows) == 0 {
		return nil, errors.New("train: no modes")
	}
	return r, nil
}

// usage is what the Programs of a run need: memory at the most, and operations of
// one optimizer step. With dynamic rows it is the bound.
type usage struct {
	savedBytes, peakBytes, arenaBytes, checkBytes int64
	forwardFLOPs, executedFLOPs, recomputedFLOPs  float64
}

func (p *programs) usage(microbatches int) usage {
	var u usage
	for _, q := range p.all() {
		m := q.Bound()
		u.peakBytes, u.arenaBytes = max(u.peakBytes, m.Peak), max(u.arenaBytes, m.Arena)
		n := float64(p.stepCount(q, microbatches))
		u.executedFLOPs += n * q.ExecutedFLOPs()
		u.recomputedFLOPs += n * q.RecomputedFLOPs()
		if p.trains(q) {
			u.checkBytes += q.CheckBytes(p.check)
			u.savedBytes = max(u.savedBytes, m.Saved)
			u.forwardFLOPs += n * q.ForwardFLOPs()
		}
	}
	return u
}

// recomputedPct is the share of the forward pass that runs again.
func (u usage) recomputedPct() float64 {
	if u.forwardFLOPs == 0 {
		return 0
	}
	return 100 * u.recomputedFLOPs / u.forwardFLOPs
}
