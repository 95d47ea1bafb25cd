package turns

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/train"
)

func trainer(t *testing.T, mode string, seed int64) *train.Trainer {
	c := train.DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = train.StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.Steps = 16, 1, 2
	c.Training.Threads, c.Training.Seed = 1, seed
	c.LRScheduler.WarmupSteps = 1
	c.State.Enable = false
	c.ActivationCheckpoint.Mode = mode
	shape := llama3.Config{Dim: 16, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 16, Hidden: 16, Vocab: 257, NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}}
	r, err := train.New(context.Background(), c, train.Options{Model: train.Llama3("tiny", shape)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pass(train.StepResult, train.Traffic) error { return nil }

// Comparisons that share a reference go step by step, in the order of their trainings, and all
// but the first step is timed.
func TestRun(t *testing.T) {
	reference := make(Reference, 2)
	var order []string
	for _, name := range []string{"a", "b"} {
		c := New(reference)
		record := func(name string) Check {
			return func(got train.StepResult, did train.Traffic) error {
				order = append(order, name)
				return nil
			}
		}
		r := c.Add(name+" none", trainer(t, "none", 1), record(name+"0"))
		c.Add(name+" full", trainer(t, "full", 1), record(name+"1"))
		if err := c.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(r.Seconds) != 1 || !(r.Seconds[0] > 0) {
			t.Errorf("%v seconds of 2 steps", r.Seconds)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(order, " "); got != "a0 a1 a0 a1 b0 b1 b0 b1" {
		t.Error(got)
	}
	if !(reference[0].Loss > 0) || !(reference[1].Loss > 0) {
		t.Error(reference)
	}
}

func TestDifference(t *testing.T) {
	c := New(make(Reference, 1))
	defer c.Close()
	c.Add("one", trainer(t, "none", 1), pass)
	c.Add("other", trainer(t, "none", 2), pass)
	if err := c.Run(context.Background()); err == nil || !strings.HasPrefix(err.Error(), "case other, step 1: loss") {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	c := New(make(Reference, 1))
	defer c.Close()
	wrong := errors.New("wrong")
	c.Add("one", trainer(t, "none", 1), func(train.StepResult, train.Traffic) error { return wrong })
	if err := c.Run(context.Background()); !errors.Is(err, wrong) {
		t.Error(err)
	}
}

func TestRatioTo(t *testing.T) {
	r, other := &Runner{Seconds: []float64{2, 4, 9}}, &Runner{Seconds: []float64{1, 1, 3}} // 2, 4, 3
	if median, low, high := r.RatioTo(other); median != 3 || low != 2.5 || high != 3.5 {
		t.Error(median, low, high)
	}
}
