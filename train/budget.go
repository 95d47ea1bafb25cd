package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
)

// budgetMode is the activation_checkpoint.mode in which the planner decides.
const budgetMode = "budget"

// budget is what the ranks of a process plan with in mode "budget". Their graphs are
// alike: what one rank has planned the others take over.
type budget struct {
	bytes int64 // that a rank may hold
	apart bool  // what the host holds is not of the budget
	// counts are the live rows of a graph that the budget reckons with.
	counts   func(*graph.Graph) graph.Counts
	costs    checkpoint.Costs
	planners map[uint64]*checkpoint.Planner // by hash of the graph's description
	plans    map[plannedKey]checkpoint.Planned
}

// plannedKey is a graph, by the hash of its description, and what the arena may hold.
type plannedKey struct {
	graph uint64
	arena int64
}

func newBudget(bytes int64, costs checkpoint.Costs) *budget {
	return &budget{bytes: bytes, counts: atBounds, costs: costs, planners: map[uint64]*checkpoint.Planner{}, plans: map[plannedKey]checkpoint.Planned{}}
}

// bounded is the part of what a rank holds that is of the budget.
func (b *budget) bounded(held beside) beside {
	if b.apart {
		return beside{persistent: held.persistent}
	}
	return held
}

// planner of a graph, made once for those that are alike.
func (b *budget) planner(g *graph.Graph, o checkpoint.Options) (*checkpoint.Planner, uint64, error) {
	hash := hashLines(g.Describe())
	p := b.planners[hash]
	if p == nil {
		var err error
		o.Counts = b.counts(g)
		if p, err = checkpoint.NewPlanner(g, o, b.costs); err != nil {
			return nil, hash, err
		}
		b.planners[hash] = p
	}
	return p, hash, nil
}

// plan of a graph whose peak in the arena is within so many bytes.
func (b *budget) plan(g *graph.Graph, o checkpoint.Options, arena int64) (checkpoint.Planned, error) {
	p, hash, err := b.planner(g, o)
	if err != nil {
		return checkpoint.Planned{}, err
	}
	key := plannedKey{hash, arena}
	q, ok := b.plans[key]
	if !ok {
		if q, err = p.Plan(arena); err != nil {
			return q, err
		}
		b.plans[key] = q
	}
	return q, nil
}

// beside is what a rank holds that no plan changes, in bytes: on its device, and on the host.
type beside struct{ persistent, stateCopy, ring int64 }

func (b beside) bytes() int64 { return b.persistent + b.host() }
func (b beside) host() int64  { return b.stateCopy + b.ring }

func (b beside) String() string {
	text := formatBytes(b.persistent) + " of parameters, gradients, optimizer state and tables"
	if b.stateCopy > 0 {
		text += " + " + formatBytes(b.stateCopy) + " to copy the state (state.async_mode)"
	}
	if b.ring > 0 {
		text += " + " + formatBytes(b.ring) + " of buffers to offload"
	}
	return text
}

// beside the arena a rank holds the variables of its Store, and the copy of the state. All
// ranks reckon with the copy of the first, so that they plan alike.
func (c *compiler) beside() beside {
	b := beside{persistent: c.store.Bytes(), ring: c.config.ringBytes()}
	if c.config.State.Enable {
		s := newShards([]*rank{{store: c.store}}, newLayout(c.config.Parallelism), c.config.Parallelism.Backend == localBackend)
		b.stateCopy = s.stagingBytes(c.config.State.async())
	}
	return b
}

// BudgetError says that no plan was found within activation_checkpoint.memory_budget.
type BudgetError struct {
	// BudgetBytes is the budget of a rank, SmallestBytes what it holds under the smallest plan.
	BudgetBytes, SmallestBytes int64
	// Holds tells what that is.
	Holds string
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("train: config: activation_checkpoint.memory_budget: no plan of a step was found within %d bytes, the smallest holds %d bytes: %s; raise it, lower training.local_batch_size or training.seq_len, or choose a smaller model.flavor",
		e.BudgetBytes, e.SmallestBytes, e.Holds)
}

// infeasible looks for the smallest plans of graphs, beside Programs that are compiled.
func (c *compiler) infeasible(graphs []*graph.Graph, compiled []*graph.Program) error {
	for _, g := range graphs {
		planner, _, err := c.budget.planner(g, checkpointOptions(c.config, c.budget.costs))
		if err != nil {
			return err
		}
		smallest, err := planner.Smallest()
		if err != nil {
			return err
		}
		p, err := graph.Compile(g, graph.CompileOptions{Plan: smallest.Plan})
		if err != nil {
			return err
		}
		compiled = append(compiled, p)
	}
	largest := largestOf(compiled, c.budget.counts)
	counts := c.budget.counts(largest.Graph)
	peak, held := largest.Memory(counts).Peak, c.budget.bounded(c.beside())
	return &BudgetError{c.budget.bytes, held.bytes() + peak, fmt.Sprintf("%v + %s in the arena, at %s", held, formatBytes(peak), describePeak(largest, counts))}
}

// describePeak names the step at which most of a Program lives, and the largest of it.
func describePeak(p *graph.Program, counts graph.Counts) string {
	at := p.PeakStep(counts)
	held := heldAt(p, counts, at)
	const most = 3
	var largest []string
	for _, v := range held[:min(most, len(held))] {
		largest = append(largest, fmt.Sprintf("%s %s (%s)", v.Use, v.Node, formatBytes(v.Bytes)))
	}
	return fmt.Sprintf("%s, where the largest are %s", p.Moment(at), strings.Join(largest, ", "))
}

// plan decides about graphs of forward and backward, beside Programs that are compiled, and
// compiles them. Under a budget it returns the bounds of what is rerun too.
func (c *compiler) plan(graphs []*graph.Graph, compiled []*graph.Program) ([]*graph.Program, []int64, error) {
	var arena int64 // that is left of the budget
	if c.budget != nil {
		arena = c.budget.bytes - c.budget.bounded(c.beside()).bytes()
		if slices.ContainsFunc(compiled, func(p *graph.Program) bool { return p.Memory(c.budget.counts(p.Graph)).Peak > arena }) {
			return nil, nil, c.infeasible(graphs, compiled)
		}
	}
	programs, bounds := make([]*graph.Program, len(graphs)), make([]int64, len(graphs))
	for i, g := range graphs {
		q, err := c.decide(g, arena)
		var infeasible *checkpoint.InfeasibleError
		switch {
		case errors.As(err, &infeasible):
			return nil, nil, c.infeasible(graphs, compiled)
		case err != nil:
			return nil, nil, fmt.Errorf("train: config: activation_checkpoint: %w", err)
		}
		if programs[i], err = graph.Compile(g, graph.CompileOptions{Plan: q.Plan}); err != nil {
			return nil, nil, err
		}
		bounds[i] = q.BoundNanoseconds
	}
	return programs, bounds, nil
}

// decide makes the plan of a graph, of policies or for so many bytes of arena.
func (c *compiler) decide(g *graph.Graph, arena int64) (checkpoint.Planned, error) {
	if c.budget != nil {
		return c.budget.plan(g, checkpointOptions(c.config, c.budget.costs), arena)
	}
	plan, err := checkpoint.Resolve(g, checkpointOptions(c.config, checkpoint.DefaultCosts()))
	return checkpoint.Planned{Plan: plan}, err
}

// openBudget finds what the ranks plan with, if the config has a budget.
func (t *Trainer) openBudget(ctx context.Context) error {
	if c := t.config.ActivationCheckpoint; c.Mode != budgetMode {
		if c.MemoryBudget != (MemoryBudget{}) {
			t.warnings = append(t.warnings, fmt.Sprintf("activation_checkpoint.memory_budget: %v has no effect in mode %q; set activation_checkpoint.mode=\"budget\"", c.MemoryBudget, c.Mode))
		}
		return nil
	}
	bytes, err := t.rankBudget(ctx)
	if err != nil {
		return err
	}
	costs := t.options.Costs
	if costs == nil {
		if costs, err = t.measureCosts(ctx); err != nil {
			return err
		}
	}
	t.budget = newBudget(bytes, costs)
	return nil
}

// rankBudget is what each rank may hold: of a fraction, what the machine with the least for
// each of its ranks has.
func (t *Trainer) rankBudget(ctx context.Context) (int64, error) {
	budget, memory := t.config.ActivationCheckpoint.MemoryBudget, t.options.availableMemory()
	if !t.world.several() || budget.Bytes > 0 {
		return budget.rank(memory, t.world.ranks())
	}
	host, err := os.Hostname()
	if err != nil {
		return 0, fmt.Errorf("train: activation_checkpoint.memory_budget: %w; write a number of bytes", err)
	}
	own := append(binary.LittleEndian.AppendUint64(nil, uint64(memory)), host...)
	all, err := exchange(ctx, t.device, t.world.seats[0].ends.data, own)
	if err != nil {
		return 0, err
	}
	ranks := map[string]int{}
	for _, text := range all {
		ranks[string(text[8:])]++
	}
	least := int64(math.MaxInt64)
	for _, text := range all {
		n, err := budget.rank(int64(binary.LittleEndian.Uint64(text)), ranks[string(text[8:])])
		if err != nil {
			return 0, err
		}
		least = min(least, n)
	}
	return least, nil
}

// availableMemory is what this process may use, in bytes; 0 if the system does not say.
func (o Options) availableMemory() int64 {
	if o.memory != 0 {
		return o.memory
	}
	return machineMemory()
}
