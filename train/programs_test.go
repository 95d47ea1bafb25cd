package train

import (
	"context"
	"fmt"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/instrument"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
)

// The peak of every Program is what kernels really touch, by an instrument that
// does not know the plan, and a run in which every dead byte is NaN has the same
// loss.
func TestMeasuredPeakIsPredicted(t *testing.T) {
	var loss float64
	for _, mode := range modeNames {
		t.Run(mode, func(t *testing.T) {
			d, err := cpu.New(cpu.Options{Workers: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			c := DefaultConfig()
			c.Job.DumpFolder = t.TempDir()
			c.Training.Dataset = StringList{"moby_dick"}
			c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 48, 2, 4
			c.Validation.Enable = true
			c.ActivationCheckpoint.Mode = mode
			model := Llama3("tiny", llama3.Config{Dim: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, Hidden: 48, Vocab: 257,
				NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: device.Float32})
			r, err := New(context.Background(), c, Options{Model: model, Device: instrument.Wrap(d)})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := r.Step(context.Background()); err != nil { // fills the inputs
				t.Fatal(err)
			}
			r.ranks[0].machines.evaluate.feed(&r.ranks[0].batches[0], 1)
			for i, m := range r.ranks[0].machines.all() {
				seen, err := graph.Measure(context.Background(), m, graph.RunOptions{Step: 2})
				if err != nil {
					t.Fatal(err)
				}
				planned := m.Program().Bound()
				if seen.Peak != planned.Peak || seen.UnwrittenReads != 0 {
					t.Errorf("program %d: measured peak %d, planned %d; %d bytes read before they were written", i, seen.Peak, planned.Peak, seen.UnwrittenReads)
				}
				if seen.Persistent != planned.Persistent {
					t.Errorf("program %d: measured persistent memory %d, planned %d", i, seen.Persistent, planned.Persistent)
				}
			}
			// The last runs were poisoned, if the instrument is still at it.
			result, err := r.Step(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if loss == 0 {
				loss = result.Loss
			} else if loss != result.Loss {
				t.Errorf("loss %v, in the first mode %v", result.Loss, loss)
			}
		})
	}
}

func TestPlanReport(t *testing.T) {
	c := DefaultConfig()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize = 64, 2
	r, err := PlanReportFor(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	none, selective, full := r.Rows[0], r.Rows[1], r.Rows[2]
	if fmt.Sprint(none.Mode, selective.Mode, full.Mode) != "noneselectivefull" {
		t.Fatalf("modes %s, %s, %s", none.Mode, selective.Mode, full.Mode)
	}
	if !(full.SavedBytes < selective.SavedBytes && selective.SavedBytes < none.SavedBytes) ||
		!(full.PeakBytes < selective.PeakBytes && selective.PeakBytes < none.PeakBytes) {
		t.Errorf("%+v: want full < selective < none", r.Rows)
	}
	if none.RecomputedFLOPs != 0 || !(selective.RecomputedFLOPs > 0 && selective.RecomputedFLOPs < full.RecomputedFLOPs) || full.RecomputedPct > 100 {
		t.Errorf("%+v: want none to recompute nothing and full the most", r.Rows)
	}
	for _, row := range r.Rows {
		if row.ArenaBytes < row.PeakBytes {
			t.Errorf("%s: an arena of %d bytes for a peak of %d", row.Mode, row.ArenaBytes, row.PeakBytes)
		}
	}
	if want := 4 * 4 * r.Model.Parameters(); r.PersistentBytes < want {
		t.Errorf("%d persistent bytes: parameters, gradients and moments alone are %d", r.PersistentBytes, want)
	}
	if len(r.Explanation.Filter("layers.0").Lines) == 0 {
		t.Error("nothing explained about layer 0")
	}
}
