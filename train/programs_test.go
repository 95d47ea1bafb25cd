package train

import (
	"context"
	"fmt"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/model/llama3"
)

// The peak of every Program is what kernels really touch, by an instrument that
// does not know the plan, and a run in which every dead byte is NaN has the same
// loss.
func TestMeasuredPeakIsPredicted(t *testing.T) {
	c := DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 48, 2, 4
	c.Validation.Enable = true
	model := Llama3("tiny", llama3.Config{Dim: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, Hidden: 48, Vocab: 257,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: device.Float32})
	for _, mode := range modeNames {
		all, err := MeasurePeaks(context.Background(), c, mode, Options{Model: model})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 5 {
			t.Errorf("%s: %d programs were measured, want 5", mode, len(all))
		}
		for _, m := range all {
			if m.Peak != m.Predicted || !m.SameLoss {
				t.Errorf("%+v: want the predicted peak, and the same loss when dead memory is poisoned", m)
			}
		}
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
