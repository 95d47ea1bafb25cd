package train_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/internal/tensorboard/eventtest"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/train"
)

// tinyExperts is a mixture of experts small enough to train in a test.
func tinyExperts(t testing.TB) train.Model {
	c, err := deepseekv3.Flavor("quickstart")
	if err != nil {
		t.Fatal(err)
	}
	c.Layers, c.Dim = 2, 32
	return train.DeepSeekV3("tiny", c)
}

// readTensorboard returns the points of every scalar and the counts of every histogram as
// a reader of the folder sees them.
func readTensorboard(t *testing.T, folder string) (scalars map[string]map[int64]float32, bars map[string]map[int64][]float64) {
	t.Helper()
	scalars, bars = map[string]map[int64]float32{}, map[string]map[int64][]float64{}
	files, err := os.ReadDir(folder) // sorted
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		events, err := eventtest.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil || len(events) < 2 || events[0].FileVersion != "brain.Event:2" {
			t.Fatalf("%s: %v: %+v", f.Name(), err, events)
		}
		for _, e := range events {
			if e.Start {
				forget(scalars, e.Step)
				forget(bars, e.Step)
			}
			for _, v := range e.Values {
				if v.Limits == nil {
					put(scalars, v.Tag, e.Step, v.Scalar)
				} else {
					put(bars, v.Tag, e.Step, v.Counts)
				}
			}
		}
	}
	return scalars, bars
}

func forget[T any](tags map[string]map[int64]T, from int64) {
	for _, points := range tags {
		for step := range points {
			if step >= from {
				delete(points, step)
			}
		}
	}
}

func put[T any](tags map[string]map[int64]T, tag string, step int64, x T) {
	if tags[tag] == nil {
		tags[tag] = map[int64]T{}
	}
	tags[tag][step] = x
}

// A run that was stopped and one that was killed behind its state go on, and the event
// files say the same as metrics.jsonl.
func TestTensorboard(t *testing.T) {
	c := tinyConfig(t)
	c.Metrics.EnableTensorboard = true
	c.Validation.Enable, c.Validation.Freq, c.Validation.Steps = true, 3, 1
	model := tinyExperts(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := train.Hook{AfterStep: func(_ context.Context, r *train.Trainer, _ train.StepResult) error {
		switch r.Steps() {
		case 3:
			cancel(errors.New("signal"))
		case 5:
			return errors.New("killed") // the newest state is of step 4
		}
		return nil
	}}
	for _, want := range []error{train.ErrStopped, nil} {
		err := newTrainer(t, c, train.Options{Model: model, Hooks: []train.Hook{stop}}).Run(ctx)
		if want != nil && !errors.Is(err, want) || err == nil {
			t.Fatalf("error %v", err)
		}
		ctx = context.Background()
	}
	last := newTrainer(t, c, train.Options{Model: model})
	if err := last.Run(ctx); err != nil {
		t.Fatal(err)
	}
	scalars, bars := readTensorboard(t, filepath.Join(c.Job.DumpFolder, "tb"))
	lines, err := train.ReadMetrics(filepath.Join(c.Job.DumpFolder, train.MetricsFile))
	if err != nil || len(lines) != 6 {
		t.Fatalf("%v: %d lines", err, len(lines))
	}
	for _, m := range lines {
		step := int64(m.Step)
		for tag, want := range map[string]train.Float{
			"loss_metrics/global_avg_loss": m.Loss, "grad_norm": m.GradNorm, "throughput(tps)": m.TPS, "mfu(%)": m.MFU,
			"memory/max_active(GiB)":                       train.Float(float64(m.MemoryBytes) / (1 << 30)),
			"expert_load_max_violation/layers.0.moe":       m.ExpertLoad[0].MaxViolation,
			"expert_load_entropy/" + m.ExpertLoad[1].Layer: m.ExpertLoad[1].Entropy,
		} {
			if got, ok := scalars[tag][step]; !ok || got != float32(want) || len(scalars[tag]) != 6 {
				t.Errorf("step %d: %s is %v, want %v, out of %d points", step, tag, got, want, len(scalars[tag]))
			}
		}
	}
	if got := scalars["lr"]; math.Abs(float64(got[1])-0.005) > 1e-6 || math.Abs(float64(got[2])-0.01) > 1e-6 {
		t.Errorf("learning rates %v, want a warmup over two steps", got)
	}
	checkValidations(t, c, scalars["validation_metrics/loss"])
	for _, l := range moe.Loads(last.Store()) {
		if got := bars["expert_load/"+l.Layer][6]; !slices.Equal(got, l.Tokens) {
			t.Errorf("%s: %v, want %v", l.Layer, got, l.Tokens)
		}
	}
}

func checkValidations(t *testing.T, c train.Config, got map[int64]float32) {
	t.Helper()
	lines, err := train.ReadValidations(filepath.Join(c.Job.DumpFolder, train.MetricsFile))
	if err != nil || len(lines) == 0 || lines[len(lines)-1].Step != 6 {
		t.Fatalf("%v: %v", err, lines)
	}
	for _, v := range lines {
		if got[int64(v.Step)] != float32(v.Loss) || v.Predictions <= 0 {
			t.Errorf("%+v, TensorBoard has %v", v, got)
		}
	}
}

// The loads of all layers are those of the whole step, whoever computed it.
func TestExpertLoadOverRanks(t *testing.T) {
	c := tinyConfig(t)
	c.Training.GlobalBatchSize = 8
	var want []moe.Load
	for _, ranks := range []int{1, 2} {
		c.Parallelism.ExpertParallelDegree = ranks
		c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 4/ranks, 8/ranks
		r := newTrainer(t, c, train.Options{Model: tinyExperts(t)})
		steps(t, r, 1)
		loads := moe.Loads(r.Store())
		if len(loads) != 2 {
			t.Fatalf("%d layers", len(loads))
		}
		for i, l := range loads {
			total := 0.0
			for _, n := range l.Tokens {
				total += n
			}
			if top := total / (8 * 32); top != math.Trunc(top) || top < 1 {
				t.Errorf("%s: %v tokens for 8 × 32", l.Layer, total)
			}
			if ranks > 1 && !slices.Equal(l.Tokens, want[i].Tokens) {
				t.Errorf("%s: %v on two ranks, %v on one", l.Layer, l.Tokens, want[i].Tokens)
			}
		}
		want = loads
	}
}
