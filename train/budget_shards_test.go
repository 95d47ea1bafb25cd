package train

import (
	"context"
	"errors"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
)

// Under a budget some layers' parameters stay gathered for backward and others are gathered
// again, as many as there is room for, and the peak is still the predicted one.
func TestBudgetKeepsParametersGathered(t *testing.T) {
	c := DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.Threads = 9, 1, 1
	c.State.Enable = false
	c.Parallelism.DataParallelShardDegree = 2
	o := Options{Costs: checkpoint.DefaultCosts(), Model: Llama3("wide", llama3.Config{Dim: 64, Layers: 6, Heads: 4, KVHeads: 4, HeadDim: 16, Hidden: 128, Vocab: 257,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: device.Float32})}
	dev, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	compiled := func(c Config) (*compiler, *programs, error) {
		seats := newLayout(c.Parallelism).seats(0)
		of, err := newCompiler(c, o, newStore(dev, c, 0, seats), seats)
		if err != nil {
			t.Fatal(err)
		}
		if c.ActivationCheckpoint.Mode == budgetMode {
			of.budget = newBudget(c.ActivationCheckpoint.MemoryBudget.Bytes, o.Costs)
		}
		p, _, err := of.compile()
		return of, p, err
	}
	all := c
	all.ActivationCheckpoint.Mode, all.Parallelism.FSDPReshardAfterForward = "none", reshardNever
	of, p, err := compiled(all)
	if err != nil {
		t.Fatal(err)
	}
	most := of.beside(p.all()...).bytes() + p.usage(1).peakBytes
	var tooSmall *BudgetError
	if _, _, err = compiled(within(c, 1)); !errors.As(err, &tooSmall) {
		t.Fatal(err)
	}
	least := tooSmall.SmallestBytes
	before := -1
	step := int64(25)
	if testing.Short() {
		step = 50
	}
	for percent := int64(0); percent <= 100; percent += step {
		budget := within(c, least+(most-least)*percent/100)
		_, p, err := compiled(budget)
		if err != nil {
			t.Fatal(err)
		}
		kept, again := 0, 0
		for _, s := range p.first.Steps {
			if s.Node.Kind != "all_gather" || s.Node.Phase != graph.Forward {
				continue
			}
			if again++; s.Kind == graph.Run {
				kept++
			}
		}
		again -= kept
		kept -= again // those that run once
		t.Logf("%d%% of the way from %d to %d bytes: %d parameters stay gathered, %d are gathered again", percent, least, most, kept, again)
		if kept < before || percent == 50 && (kept == 0 || again == 0) || percent == 100 && again > 0 {
			t.Errorf("%d%%: %d parameters stay gathered, %d are gathered again", percent, kept, again)
		}
		before = kept
		measured, err := MeasurePeaks(context.Background(), budget, budgetMode, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range measured {
			if m.Peak != m.Predicted || m.Differs != "" || !m.SameLoss {
				t.Errorf("%d%%: %+v", percent, m)
			}
		}
	}
}
