package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
)

// budgetConfig is a small run, with Programs of every kind.
func budgetConfig(t testing.TB) Config {
	c := DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.GlobalBatchSize, c.Training.Threads = 48, 2, 4, 2
	c.Validation.Enable = true
	return c
}

// within is a config in mode budget.
func within(c Config, bytes int64) Config {
	c.ActivationCheckpoint.Mode, c.ActivationCheckpoint.MemoryBudget = budgetMode, MemoryBudget{Bytes: bytes}
	return c
}

// smallest is the least budget of a config.
func smallest(t testing.TB, c Config, o Options) int64 {
	t.Helper()
	r, err := New(context.Background(), within(c, 1), o)
	if err == nil {
		r.Close()
	}
	var infeasible *BudgetError
	if !errors.As(err, &infeasible) {
		t.Fatalf("a budget of one byte: %v", err)
	}
	return infeasible.SmallestBytes
}

// losses of the first steps of a run.
func losses(t testing.TB, c Config, o Options) (list []StepResult, r *Trainer) {
	t.Helper()
	r, err := New(context.Background(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	for range 2 {
		s, err := r.Step(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list, r
}

// What a rank holds is measured to be within the budget, less is rerun under a larger one,
// and all of them train what saving everything does.
func TestBudgetsAreKept(t *testing.T) {
	c := budgetConfig(t)
	c.Model = ModelConfig{Name: "deepseek_v3", Flavor: "quickstart"}
	experts, err := newModel(c, device.Float32)
	if err != nil {
		t.Fatal(err)
	}
	budgets := map[Model]int64{tinyLlama(): 40, experts: 10}
	for model, n := range budgets {
		if testing.Short() {
			n = 3
		}
		keepBudgets(t, c, Options{Model: model, Costs: checkpoint.DefaultCosts()}, n)
	}
}

func keepBudgets(t *testing.T, c Config, o Options, budgets int64) {
	none := c
	none.ActivationCheckpoint.Mode = "none"
	want, r := losses(t, none, o)
	most, least := r.PredictedBytes(), smallest(t, c, o)
	if least >= most {
		t.Fatalf("%s: the smallest plan holds %d bytes, none %d", o.Model.Name(), least, most)
	}
	before := int64(-1)
	for i := range budgets {
		percent := 100 - 100*i/(budgets-1)
		c := within(c, least+(most-least)*percent/100)
		got, r := losses(t, c, o)
		name := fmt.Sprintf("%s, %d%%", o.Model.Name(), percent)
		if !slices.Equal(got, want) {
			t.Errorf("%s: steps %v, want %v", name, got, want)
		}
		reruns := r.ranks[0].programs.times(2, o.Costs).reruns
		if reruns < before || percent == 100 && reruns != 0 || percent == 0 && reruns == 0 {
			t.Errorf("%s: reruns take %v ns, %v under a larger budget", name, reruns, before)
		}
		before = reruns
		beside := r.ranks[0].store.Bytes() + r.stagingBytes()
		r.Close()
		all, err := MeasurePeaks(context.Background(), c, budgetMode, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Peak != m.Predicted || m.Differs != "" || !m.SameLoss || beside+m.Peak > c.ActivationCheckpoint.MemoryBudget.Bytes {
				t.Errorf("%s: %+v beside %d bytes, within %v", name, m, beside, c.ActivationCheckpoint.MemoryBudget)
			}
		}
	}
}

// Less than the smallest plan is refused, with what that one holds, and where.
func TestInfeasibleBudget(t *testing.T) {
	c, o := budgetConfig(t), Options{Model: tinyLlama(), Costs: checkpoint.DefaultCosts()}
	least := smallest(t, c, o)
	_, err := New(context.Background(), within(c, least-1), o)
	var config *ConfigError
	if !errors.As(err, &config) {
		t.Fatalf("one byte less than the smallest: %v", err)
	}
	for _, want := range []string{"activation_checkpoint.memory_budget", fmt.Sprintf("within %d bytes, the smallest holds %d bytes: ", least-1, least),
		"of parameters, optimizer state and tables", "to copy the state", "in the arena, at ", "where the largest are ", "raise it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	// A fraction is one of what there is.
	c = within(c, 0)
	c.ActivationCheckpoint.MemoryBudget = MemoryBudget{Fraction: 0.5}
	o.memory = 2*least + 1
	losses(t, c, o)
	o.memory = 2*least - 2
	if _, err := New(context.Background(), c, o); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("within %d bytes", least-1)) {
		t.Errorf("half of too little: %v", err)
	}
}

// All ranks have one plan, with experts on other ranks and parameters divided, and it is
// that of another process with other threads.
func TestBudgetOfRanks(t *testing.T) {
	for _, shard := range []bool{false, true} {
		c, o := replicated(t, 2)
		c.Training.SeqLen, o.Costs = 128, checkpoint.DefaultCosts() // activations are the most of it
		if shard {
			c.Parallelism.DataParallelReplicateDegree, c.Parallelism.DataParallelShardDegree = 1, 4
		}
		none := c
		none.ActivationCheckpoint.Mode = "none"
		want, r := losses(t, none, o)
		most := r.ranks[0].store.Bytes() + r.ranks[0].programs.usage(2).peakBytes
		least := smallest(t, c, o)
		c = within(c, (least+most)/2)
		got, r := losses(t, c, o)
		if !slices.Equal(got, want) {
			t.Errorf("sharded %v: steps %v, want %v", shard, got, want)
		}
		plan := slices.Collect(r.ranks[0].programs.describePlans())
		if len(r.ranks[0].programs.last.Reruns()) == 0 {
			t.Errorf("sharded %v: nothing is rerun", shard)
		}
		for _, other := range r.ranks[1:] {
			if !slices.Equal(plan, slices.Collect(other.programs.describePlans())) {
				t.Errorf("sharded %v: rank %d has another plan than rank 0", shard, other.index)
			}
		}
		d, err := cpu.New(cpu.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		connected, err := newLayout(c.Parallelism).localEnds(o.Link)
		if err != nil {
			t.Fatal(err)
		}
		const last = 3
		apart, err := newCompiler(c, o, newStore(d, c, last, connected[last]), connected[last])
		if err != nil {
			t.Fatal(err)
		}
		apart.budget = newBudget(c.ActivationCheckpoint.MemoryBudget.Bytes, o.Costs)
		p, _, err := apart.compile()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(plan, slices.Collect(p.describePlans())) {
			t.Errorf("sharded %v: planned alone, rank %d has another plan than rank 0", shard, last)
		}
	}
}
