package train

import (
	"context"
	"fmt"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/moe"
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
			if m.Peak != m.Predicted || m.Differs != "" || !m.SameLoss {
				t.Errorf("%+v: want the predicted peak, and the same loss when dead memory is poisoned", m)
			}
		}
	}
}

// checkBounds wants the line of bounds to fall from that of the least budget to 0, and no row of
// the report below it.
func checkBounds(t *testing.T, r *PlanReport) {
	t.Helper()
	for i, w := range r.Bounds {
		if i > 0 && (w.BudgetBytes < r.Bounds[i-1].BudgetBytes || w.BoundPct > r.Bounds[i-1].BoundPct) {
			t.Errorf("after %+v comes %+v", r.Bounds[i-1], w)
		}
		for _, row := range r.Rows {
			if row.TotalBytes <= w.BudgetBytes && row.RecomputedTimePct < w.BoundPct*(1-1e-12) {
				t.Errorf("%s takes %d bytes and %g %%, and within %d bytes the bound is %g %%", row.Mode, row.TotalBytes, row.RecomputedTimePct, w.BudgetBytes, w.BoundPct)
			}
		}
	}
	first, last := r.Bounds[0], r.Bounds[len(r.Bounds)-1]
	if least := r.Rows[len(r.Rows)-1]; first.BudgetBytes != least.BudgetBytes || first.BoundPct != least.BoundPct || last.BoundPct != 0 {
		t.Errorf("bounds from %+v to %+v, the least budget has %+v", first, last, least.Within)
	}
}

func TestPlanReport(t *testing.T) {
	c := DefaultConfig()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize = 256, 4 // activations are more than gradients
	r, err := PlanReportFor(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkBounds(t, r)
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
	if want := 3 * 4 * r.Model.Parameters(); r.PersistentBytes < want || none.PeakBytes < want/3 {
		t.Errorf("%d persistent bytes: parameters and moments alone are %d", r.PersistentBytes, want)
	}
	if len(r.Explanation.Filter("layers.0").Lines) == 0 {
		t.Error("nothing explained about layer 0")
	}
}

// replicated is a model with experts on two replicas of two ranks, large enough for its
// gradients to be sent in several parts, with n microbatches a step.
func replicated(t *testing.T, n int) (Config, Options) {
	c := DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 16, 1, n
	c.Training.Threads = 2
	c.State.Enable = false
	c.Parallelism.DataParallelReplicateDegree, c.Parallelism.ExpertParallelDegree = 2, 2
	return c, Options{Model: DeepSeekV3("replicated", deepseekv3.Config{Dim: 160, Layers: 3, DenseLayers: 1, Vocab: 1700, Hidden: 160,
		Heads: 4, QLoRA: 16, KVLoRA: 16, NoPEDims: 8, RoPEDims: 4, ValueDim: 8, RoPE: attention.RoPE{Theta: 1e4},
		Experts: 4, TopK: 2, ExpertHidden: 200, SharedExperts: 1, Score: moe.Sigmoid, RouteNorm: true, RouteScale: 1,
		LoadBalance: 1e-3, NormEps: 1e-5, DType: device.Float32})}
}

// The same holds on every rank while gradients travel beside backward.
func TestMeasuredPeakOfReplicas(t *testing.T) {
	for n, programs := range map[int]int{1: 3, 2: 4, 3: 5} {
		c, o := replicated(t, n)
		mode := modeNames[n-1]
		all, err := MeasurePeaks(context.Background(), c, mode, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 4*programs {
			t.Errorf("%s: %d programs were measured, want %d of each of 4 ranks", mode, len(all), programs)
		}
		for _, m := range all {
			if m.Peak != m.Predicted || m.Differs != "" || !m.SameLoss {
				t.Errorf("%+v: want the predicted peak, and the same loss when dead memory is poisoned", m)
			}
		}
	}
}

// Gradients set out while backward goes on, those of one group on one lane, and are
// computed where they belong.
func TestReductionOverlapsBackward(t *testing.T) {
	c, o := replicated(t, 1)
	r, err := New(context.Background(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sent := map[graph.Lane]int{}
	var first, last, join int // steps: the first reduction, the last of backward, the join
	for _, s := range r.ranks[0].programs.first.Steps {
		switch {
		case s.Kind == graph.Run && s.Node.Kind == "all_reduce":
			sent[s.Lane]++
			if first == 0 {
				first = s.Index
			}
		case s.Node.Kind == "assign" && !s.Node.Commit:
			t.Errorf("%s copies a gradient", s.Node.Name)
		case s.Node.Kind == "join":
			join = s.Index
		case s.Node.Phase == graph.Backward && s.Kind == graph.Run:
			last = s.Index
		}
	}
	if sent["collective data"] < 3 || sent["collective replica"] < 2 || len(sent) != 2 {
		t.Errorf("reductions by lane: %v, want several of data and of replica", sent)
	}
	if first == 0 || !(first < last/2) || !(last < join) {
		t.Errorf("the first reduction is step %d, the end of backward %d, the join %d", first, last, join)
	}
}
