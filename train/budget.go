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
	"github.com/lethe-go/lethe/device/spill"
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

// plannedKey is a graph, by the hash of its description, what the arena and buffers may hold,
// and the way.
type plannedKey struct {
	graph uint64
	arena int64
	way   way
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

// planAll makes plans whose peaks in the arena are within so many bytes, less the buffers
// of a way, and adds up what they cost.
func (b *budget) planAll(graphs []*graph.Graph, o checkpoint.Options, w way, arena int64) (plans []*graph.Plan, added int64, err error) {
	for _, g := range graphs {
		p, hash, err := b.planner(g, o)
		if err != nil {
			return nil, 0, err
		}
		key := plannedKey{hash, arena, w}
		q, ok := b.plans[key]
		if !ok {
			if q, err = w.of(p).Plan(arena - w.ring); err != nil {
				return nil, 0, err
			}
			b.plans[key] = q
		}
		plans, added = append(plans, q.Plan), added+q.AddedNanoseconds
	}
	return plans, added, nil
}

// way to plan: in memory alone, or with a file beside a ring of buffers.
type way struct {
	offload bool
	ring    int64 // of the budget, in bytes
}

// of is the planner that goes a way.
func (w way) of(p *checkpoint.Planner) *checkpoint.Planner {
	if w.offload {
		return p
	}
	return p.InMemory()
}

// ways that a config allows.
func (b *budget) ways(c Config) []way {
	list := []way{{}}
	if len(c.ActivationCheckpoint.Offload) > 0 {
		list = append(list, way{offload: true, ring: b.bounded(beside{ring: spill.RingBytes}).ring})
	}
	return list
}

// bound is what no plan of a graph within so many bytes of arena and buffers adds less than,
// in nanoseconds.
func (b *budget) bound(p *checkpoint.Planner, c Config, arena int64) int64 {
	least := int64(math.MaxInt64)
	for _, w := range b.ways(c) {
		least = min(least, w.of(p).Bound(arena-w.ring))
	}
	return least
}

// beside is what a rank holds that no plan changes, in bytes: on its device, and on the host.
type beside struct{ persistent, stateCopy, ring int64 }

func (b beside) bytes() int64 { return b.persistent + b.host() }
func (b beside) host() int64  { return b.stateCopy + b.ring }

func (b beside) String() string {
	text := formatBytes(b.persistent) + " of parameters, optimizer state and tables"
	if b.stateCopy > 0 {
		text += " + " + formatBytes(b.stateCopy) + " to copy the state (state.async_mode)"
	}
	if b.ring > 0 {
		text += " + " + formatBytes(b.ring) + " of buffers to offload"
	}
	return text
}

// beside the arena a rank holds the variables of its Store, the copy of the state, and
// the buffers between memory and the file if any of its Programs offloads. All ranks reckon
// with the copy of the first, so that they plan alike.
func (c *compiler) beside(programs ...*graph.Program) beside {
	b := beside{persistent: c.store.Bytes(), ring: ringBytes(programs)}
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
	var smallest *BudgetError
	for _, w := range c.budget.ways(c.config) {
		programs := slices.Clone(compiled)
		for _, g := range graphs {
			planner, _, err := c.budget.planner(g, checkpointOptions(c.config, c.budget.costs))
			if err != nil {
				return err
			}
			q, err := w.of(planner).Smallest()
			if err != nil {
				return err
			}
			p, err := graph.Compile(g, graph.CompileOptions{Plan: q.Plan})
			if err != nil {
				return err
			}
			programs = append(programs, p)
		}
		largest := largestOf(programs, c.budget.counts)
		counts := c.budget.counts(largest.Graph)
		peak, held := largest.Memory(counts).Peak, c.budget.bounded(c.beside(programs...))
		if bytes := held.bytes() + peak; smallest == nil || bytes < smallest.SmallestBytes {
			smallest = &BudgetError{c.budget.bytes, bytes, fmt.Sprintf("%v + %s in the arena, at %s", held, formatBytes(peak), describePeak(largest, counts))}
		}
	}
	return smallest
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
// compiles them. Under a budget it returns the bounds of what they add to a step too.
func (c *compiler) plan(graphs []*graph.Graph, compiled []*graph.Program) (programs []*graph.Program, bounds []int64, err error) {
	plans := make([]*graph.Plan, len(graphs))
	if c.budget != nil {
		plans, bounds, err = c.planWithin(graphs, compiled)
	} else {
		for i, g := range graphs {
			if plans[i], err = checkpoint.Resolve(g, checkpointOptions(c.config, c.copyCosts)); err != nil {
				err = fmt.Errorf("train: config: activation_checkpoint: %w", err)
				break
			}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	for i, g := range graphs {
		p, err := graph.Compile(g, graph.CompileOptions{Plan: plans[i]})
		if err != nil {
			return nil, nil, err
		}
		programs = append(programs, p)
	}
	return programs, bounds, nil
}

// planWithin finds the plans that add the least time to a step, of those that keep
// everything in memory and those that offload beside the buffers that it takes. It returns
// what no plan of a graph adds less than.
func (c *compiler) planWithin(graphs []*graph.Graph, compiled []*graph.Program) (plans []*graph.Plan, bounds []int64, err error) {
	arena := c.budget.bytes - c.budget.bounded(c.beside()).bytes()
	for _, p := range compiled {
		if p.Memory(c.budget.counts(p.Graph)).Peak > arena {
			return nil, nil, c.infeasible(graphs, compiled)
		}
	}
	o := checkpointOptions(c.config, c.budget.costs)
	least := int64(math.MaxInt64)
	for _, w := range c.budget.ways(c.config) {
		some, added, err := c.budget.planAll(graphs, o, w, arena)
		var infeasible *checkpoint.InfeasibleError
		switch {
		case errors.As(err, &infeasible):
		case err != nil:
			return nil, nil, fmt.Errorf("train: config: activation_checkpoint: %w", err)
		case added < least:
			plans, least = some, added
		}
	}
	if plans == nil {
		return nil, nil, c.infeasible(graphs, compiled)
	}
	for _, g := range graphs {
		planner, _, err := c.budget.planner(g, o)
		if err != nil {
			return nil, nil, err
		}
		bounds = append(bounds, c.budget.bound(planner, c.config, arena))
	}
	return plans, bounds, nil
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
