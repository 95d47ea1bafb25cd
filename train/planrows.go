package train

import (
	"errors"
	"math"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// PlanRow is what one activation checkpointing mode would cost.
type PlanRow struct {
	Mode string `json:"mode"`
	// Bytes that are carried over from forward to backward of one microbatch.
	SavedBytes int64 `json:"saved_bytes"`
	// Most bytes that are alive in the arena at one time, gradients among them, over all
	// Programs.
	PeakBytes int64 `json:"peak_bytes"`
	// Size of the arena: the peak and what placement loses.
	ArenaBytes int64 `json:"arena_bytes"`
	// The peak and what is held beside the arena: parameters, optimizer state, tables, the copy
	// of the state and the buffers of what is offloaded. It is what a budget bounds.
	TotalBytes int64 `json:"total_bytes"`
	// Bytes that are carried over to backward in a file, and not in memory.
	OffloadedBytes int64 `json:"offloaded_bytes,omitempty"`
	// Buffers on their way, which are held beside the arena.
	OffloadBufferBytes int64 `json:"offload_buffer_bytes,omitempty"`
	// Host memory beside the arena that activation_checkpoint.check takes.
	CheckBytes int64 `json:"check_bytes,omitempty"`
	// Floating-point operations that run a second time in one optimizer step, and
	// their share of those of its forward passes.
	RecomputedFLOPs float64 `json:"recomputed_flops"`
	RecomputedPct   float64 `json:"recomputed_pct"`
	// The time of the same by the costs of operations, and its share of that of the forward
	// passes.
	RecomputedSeconds float64 `json:"recomputed_seconds"`
	RecomputedTimePct float64 `json:"recomputed_time_pct"`
	// The time by which copies to and from the file hold up a step, as they are planned.
	OffloadWaitSeconds float64 `json:"offload_wait_seconds,omitempty"`
	// Within is nil but in mode "budget".
	*Within
}

// Within is how good a plan within a budget is.
type Within struct {
	// BudgetBytes is what TotalBytes may be.
	BudgetBytes int64 `json:"budget_bytes"`
	// BoundPct is a share of the time of the forward passes that reruns and waits for copies
	// of no plan within the budget undercut, as planners know (checkpoint.Planned), and
	// GapPct what this one is above it.
	BoundPct float64 `json:"bound_pct"`
	GapPct   float64 `json:"gap_pct"`
}

// PlanReport compares the modes before anything is allocated or run. With several
// ranks the figures are those of one; with experts on other ranks they are bounds,
// for how many rows a rank gets shows only as it runs.
type PlanReport struct {
	Model Model
	// Rows in the order none, selective, full, the config's own budget, other budgets.
	Rows []PlanRow
	// Costs tells where the costs of operations are from.
	Costs string
	// Own is the index in Rows of what the config asks for.
	Own int
	// PersistentBytes are held beside the arena in every mode: parameters, optimizer state
	// and tables.
	PersistentBytes int64
	// StateCopyBytes hold the copy of the state while it is written: 0 unless
	// state.async_mode is "async" or ranks have to bring their parts together.
	StateCopyBytes int64
	// Bounds are what no plan undercuts, at budgets from the smallest to that for everything.
	Bounds []Within
	// Explanation tells for each value of the config's own mode what becomes of
	// it, and why.
	Explanation checkpoint.Report
	// Program is forward and backward of the first microbatch under the config's own
	// mode.
	Program *graph.Program
}

// PlanReportFor builds and compiles the Programs of a config under every mode, and under
// budgets between what holding everything takes and the least. It allocates none of their memory, so
// it works for models of any size.
func PlanReportFor(c Config, o Options) (*PlanReport, error) {
	m, r, err := planModes(c, o)
	if err == nil {
		defer m.close()
		err = m.sweep(r)
	}
	if err != nil {
		return nil, &ConfigError{err}
	}
	return r, nil
}

// planMaker makes the rows of a report.
type planMaker struct {
	config  Config
	options Options
	device  device.Device
	close   func() error // gives up what the maker has opened
	budget  *budget
	// Of the row that was made last.
	programs *programs
	held     beside
}

// planModes reports on every mode without a budget, and on the config's own.
func planModes(c Config, o Options) (*planMaker, *PlanReport, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	m := &planMaker{config: c, options: o}
	var err error
	if m.device, m.close, err = openDevice(o.Device, c.Training.Threads); err != nil {
		return nil, nil, err
	}
	r := &PlanReport{}
	costs, err := o.reportedCosts(m.device, newLayout(c.Parallelism).processRanks(c.Parallelism.Backend))
	if err == nil {
		r.Costs, m.budget = costs.from, newBudget(0, costs.Costs)
		err = m.modes(r)
	}
	if err != nil {
		m.close()
	}
	return m, r, err
}

// reportedModes are those without a budget, in the order of reports.
var reportedModes = []string{"none", "selective", "full"}

func (m *planMaker) modes(r *PlanReport) error {
	for _, mode := range reportedModes {
		if err := m.row(r, mode, 0); err != nil {
			return err
		}
	}
	if m.config.ActivationCheckpoint.Mode != budgetMode {
		return nil
	}
	bytes, err := m.config.ActivationCheckpoint.MemoryBudget.rank(m.options.availableMemory(), newLayout(m.config.Parallelism).ranks())
	if err != nil {
		return err
	}
	return m.row(r, budgetMode, bytes)
}

// sweepPercent are the budgets of a report, in percent of what holding everything takes more than
// the least.
var sweepPercent = []int64{75, 50, 25, 10, 0}

// sweep reports on budgets between everything and the least.
func (m *planMaker) sweep(r *PlanReport) error {
	c, err := m.compiler(budgetMode, 0)
	if err != nil {
		return err
	}
	_, _, err = c.compile()
	var infeasible *BudgetError // nothing is not enough
	if !errors.As(err, &infeasible) {
		return err
	}
	least, most := infeasible.SmallestBytes, r.Rows[0].TotalBytes
	if len(m.config.ActivationCheckpoint.Offload) > 0 { // which leaves nothing in memory in mode "none"
		if most, err = m.unbounded(); err != nil {
			return err
		}
	}
	for _, percent := range sweepPercent {
		if err := m.row(r, budgetMode, least+(most-least)*percent/100); err != nil {
			return err
		}
	}
	m.bound(r, least, most)
	return nil
}

// unbounded is what a step holds within a budget for everything.
func (m *planMaker) unbounded() (int64, error) {
	c, err := m.compiler(budgetMode, math.MaxInt64/4)
	if err != nil {
		return 0, err
	}
	p, _, err := c.compile()
	if err != nil {
		return 0, err
	}
	return c.beside(p.all()...).bytes() + p.usage(1).peakBytes, nil
}

// boundPoints are the budgets at which a report knows bounds.
const boundPoints = 60

// bound adds what is known of all budgets between two. Programs that share a planner differ in
// how often a step runs them alone.
func (m *planMaker) bound(r *PlanReport, least, most int64) {
	microbatches := m.config.Training.Microbatches()
	held := m.budget.bounded(m.held)
	held.ring = 0 // which only some plans hold
	for i := range int64(boundPoints + 1) {
		w := Within{BudgetBytes: least + (most-least)*i/boundPoints}
		var bound int64
		for _, q := range m.programs.all() {
			if m.programs.trains(q) {
				bound += int64(m.programs.stepCount(q, microbatches)) * m.budget.bound(m.budget.planners[hashLines(q.Graph.Describe())], m.config, w.BudgetBytes-held.bytes())
			}
		}
		w.BoundPct = m.programs.times(microbatches, m.budget.costs).percent(bound)
		r.Bounds = append(r.Bounds, w)
	}
}

// compiler of the first rank under a mode, and within so many bytes if that is a budget.
func (m *planMaker) compiler(mode string, bytes int64) (*compiler, error) {
	c := m.config
	c.ActivationCheckpoint.Mode = mode
	seats := newLayout(c.Parallelism).seats(0)
	of, err := newCompiler(c, m.options, newStore(m.device, c, 0, seats), seats)
	if err == nil && mode == budgetMode {
		of.budget = m.budget
		of.budget.bytes = bytes
	}
	return of, err
}

// row adds one to the report. The first of the config's own mode is what the config asks for.
func (m *planMaker) row(r *PlanReport, mode string, bytes int64) error {
	c, err := m.compiler(mode, bytes)
	if err != nil {
		return err
	}
	p, _, err := c.compile()
	if err != nil {
		return err
	}
	held := c.beside(p.all()...)
	m.programs, m.held = p, held
	r.Model, r.PersistentBytes, r.StateCopyBytes = c.model, held.persistent, held.stateCopy
	microbatches := m.config.Training.Microbatches()
	u, t := p.usage(microbatches), p.times(microbatches, m.budget.costs)
	row := PlanRow{Mode: mode, SavedBytes: u.savedBytes, PeakBytes: u.peakBytes, ArenaBytes: u.arenaBytes, TotalBytes: held.bytes() + u.peakBytes, OffloadedBytes: u.offloadedBytes, OffloadBufferBytes: held.ring, CheckBytes: u.checkBytes,
		RecomputedFLOPs: u.recomputedFLOPs, RecomputedPct: u.recomputedPct(), RecomputedSeconds: float64(t.reruns) / 1e9, RecomputedTimePct: t.percent(t.reruns),
		OffloadWaitSeconds: float64(t.waits) / 1e9}
	if mode == budgetMode {
		row.Within = &Within{BudgetBytes: bytes, BoundPct: t.percent(t.bound), GapPct: t.percent(t.reruns + t.waits - t.bound)}
	}
	r.Rows = append(r.Rows, row)
	if r.Program == nil && mode == m.config.ActivationCheckpoint.Mode {
		r.Own, r.Program = len(r.Rows)-1, p.first
		r.Explanation = checkpoint.Explain(p.first.Graph, p.first.Plan)
	}
	return nil
}

// times are what the passes of an optimizer step cost, in nanoseconds.
type times struct{ forward, reruns, waits, bound int64 }

func (p *programs) times(microbatches int, costs checkpoint.Costs) times {
	var t times
	for _, q := range p.all() {
		if !p.trains(q) {
			continue
		}
		n := int64(p.stepCount(q, microbatches))
		t.bound += n * p.bounds[q]
		t.waits += n * checkpoint.CopyWait(q, q.Plan.Pace, nil)
		for _, s := range q.Steps {
			switch {
			case !s.Computes():
			case s.Pass() == graph.ForwardPass:
				t.forward += n * costs.Nanoseconds(s.Node)
			case s.Pass() == graph.RerunPass:
				t.reruns += n * costs.Nanoseconds(s.Node)
			}
		}
	}
	return t
}

// percent of the forward pass.
func (t times) percent(nanoseconds int64) float64 {
	if t.forward == 0 {
		return 0
	}
	return 100 * float64(nanoseconds) / float64(t.forward)
}

// usage is what the Programs of a run need: memory at the most, and operations of
// one optimizer step. With dynamic rows it is the bound.
type usage struct {
	savedBytes, offloadedBytes, peakBytes, arenaBytes, checkBytes int64
	forwardFLOPs, executedFLOPs, recomputedFLOPs                  float64
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
			u.offloadedBytes = max(u.offloadedBytes, m.Offloaded)
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
