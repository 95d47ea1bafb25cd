package train_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/train"
)

// firstNonFinite makes a step that must fail and returns what was found.
func firstNonFinite(t *testing.T, r *train.Trainer) (*graph.NonFiniteError, error) {
	t.Helper()
	_, err := r.Step(context.Background())
	var found *graph.NonFiniteError
	if !errors.Is(err, graph.ErrNonFinite) || !errors.As(err, &found) {
		t.Fatalf("error %v, want one that names a node", err)
	}
	if !strings.Contains(err.Error(), "the parameters were not updated") {
		t.Errorf("%v", err)
	}
	return found, err
}

// poison puts a NaN into a parameter.
func poison(t *testing.T, r *train.Trainer, name string, index int) {
	t.Helper()
	v := r.Store().Variable(name)
	if v == nil {
		t.Fatalf("no parameter %s", name)
	}
	device.Elements[float32](v.Tensor())[index] = float32(math.NaN())
}

// A NaN in a parameter is found where it is read first, by running the step again or by a
// watch that was on, alone and on two ranks.
func TestNaNIsTraced(t *testing.T) {
	for _, test := range []struct {
		name      string
		ranks     int
		watch     bool
		parameter string
		node      string
		pass      graph.Pass
	}{
		{"again", 1, false, "layers.1.attention.wk.weight", "layers.1.attention.", graph.ForwardPass},
		{"watched", 1, true, "layers.1.attention.wk.weight", "layers.1.attention.", graph.ForwardPass},
		// Every token goes through the shared experts, whatever the router has learned.
		{"ranks", 2, false, "layers.1.moe.shared_experts.w2.weight", "layers.1.moe.shared_experts.", graph.ForwardPass},
		{"ranks watched", 2, true, "layers.1.moe.shared_experts.w2.weight", "layers.1.moe.shared_experts.", graph.ForwardPass},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := tinyConfig(t)
			c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 2, 4
			c.Parallelism.ExpertParallelDegree = test.ranks
			c.Metrics.NaNWatch = test.watch
			o := train.Options{}
			if test.ranks > 1 {
				o.Model = tinyExperts(t)
			}
			r := newTrainer(t, c, o)
			steps(t, r, 2)
			poison(t, r, test.parameter, 5)
			before := parameters(r)
			found, err := firstNonFinite(t, r)
			if !strings.HasPrefix(found.Node.Name, test.node) || found.Pass != test.pass {
				t.Errorf("found %v: %v", found.Node, err)
			}
			reads := false
			for _, in := range found.Inputs {
				reads = reads || in.Name == test.parameter && in.NonFinite == 1 && in.Min < 0 && in.Max > 0
			}
			if !reads || !strings.Contains(err.Error(), ".go:") || !strings.Contains(err.Error(), " with 1 of ") {
				t.Errorf("%v\nnames neither the parameter nor the source", err)
			}
			if again := strings.Contains(err.Error(), "step 3 was run again"); again == test.watch {
				t.Errorf("run again: %v: %v", again, err)
			}
			if name := sameParameters(before, parameters(r)); name != "" {
				t.Errorf("%s was changed", name)
			}
		})
	}
}

// sameParameters is sameBits for what is trained: the counters of a failed step are void.
func sameParameters(a, b map[string][]float32) string {
	for name := range a {
		if strings.HasSuffix(name, ".tokens_per_expert") {
			delete(a, name)
		}
	}
	return sameBits(a, b)
}

// A norm that overflows is found in the program that computes it.
func TestOverflowOfTheNormIsTraced(t *testing.T) {
	r := newTrainer(t, tinyConfig(t), train.Options{Model: steep{}})
	found, err := firstNonFinite(t, r)
	if !strings.HasPrefix(found.Node.Name, "optimizer.") || found.Pass != graph.UpdatePass || len(found.Inputs) == 0 || found.Inputs[0].NonFinite != 0 {
		t.Errorf("%v", err)
	}
}

// The watch changes no bit and finds nothing in healthy models.
func TestWatchChangesNothing(t *testing.T) {
	for name, model := range map[string]train.Model{"llama3": tiny(device.Float32), "experts": tinyExperts(t)} {
		t.Run(name, func(t *testing.T) {
			c := tinyConfig(t)
			c.Training.Steps = 3
			c.Validation.Enable, c.Validation.Freq, c.Validation.Steps = true, 3, 1
			w := c
			w.Job.DumpFolder = t.TempDir()
			w.Metrics.NaNWatch = true
			for _, c := range []train.Config{c, w} {
				if err := newTrainer(t, c, train.Options{Model: model}).Run(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if report, err := train.Compare(c.Job.DumpFolder, w.Job.DumpFolder); err != nil || !report.Equal() {
				t.Errorf("%v: %v", err, report)
			}
		})
	}
}
