package train_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/nn"
	"github.com/lethe-go/lethe/train"
)

// tiny is a model small enough to train in a test.
func tiny(dtype device.DType) train.Model {
	return train.Llama3("tiny", llama3.Config{Dim: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, Hidden: 48, Vocab: 257,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: dtype})
}

// tinyConfig trains it for a few steps.
func tinyConfig(t testing.TB) train.Config {
	c := train.DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = train.StringList{"moby_dick"}
	c.Training.SeqLen = 32
	c.Training.LocalBatchSize = 4
	c.Training.Steps = 6
	c.Training.Threads = 2
	c.Optimizer.LR = 1e-2
	c.LRScheduler.WarmupSteps = 2
	c.State.Interval = 2
	c.Metrics.LogFreq = 1
	return c
}

func newTrainer(t testing.TB, c train.Config, o train.Options) *train.Trainer {
	t.Helper()
	if o.Model == nil {
		dtype, err := device.ParseDType(c.Training.DType)
		if err != nil {
			t.Fatal(err)
		}
		o.Model = tiny(dtype)
	}
	r, err := train.New(context.Background(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func trainAll(t testing.TB, c train.Config) {
	t.Helper()
	if err := newTrainer(t, c, train.Options{}).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// steps makes n steps.
func steps(t testing.TB, r *train.Trainer, n int) []train.StepResult {
	t.Helper()
	list := make([]train.StepResult, n)
	for i := range list {
		var err error
		if list[i], err = r.Step(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// parameters copies what is trained.
func parameters(r *train.Trainer) map[string][]float32 {
	values := map[string][]float32{}
	for _, v := range r.Store().Variables() {
		if v.Kind == graph.Parameter || v.Kind == graph.State {
			values[v.Name] = append([]float32(nil), device.Elements[float32](v.Tensor())...)
		}
	}
	return values
}

func sameBits(a, b map[string][]float32) string {
	for name, x := range a {
		for i := range x {
			if math.Float32bits(x[i]) != math.Float32bits(b[name][i]) {
				return name
			}
		}
	}
	return ""
}

// Two microbatches of two rows are the four rows of one: the loss is divided by
// the labels of the whole step.
func TestAccumulationEqualsOneBatch(t *testing.T) {
	c := tinyConfig(t)
	c.Training.DType = "float64"
	whole := steps(t, newTrainer(t, c, train.Options{}), 4)
	c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 1, 4
	parts := steps(t, newTrainer(t, c, train.Options{}), 4)
	for i, w := range whole {
		p := parts[i]
		if math.Abs(p.Loss/w.Loss-1) > 1e-12 || math.Abs(p.GradNorm/w.GradNorm-1) > 1e-10 || p.Valid != w.Valid || p.Tokens != w.Tokens {
			t.Errorf("step %d: in four microbatches %+v, in one %+v", i+1, p, w)
		}
	}
}

// Without clipping the update does not depend on max_norm, and a gradient below
// max_norm is not scaled.
func TestClipping(t *testing.T) {
	results := map[float64][]train.StepResult{}
	for _, most := range []float64{0, 1e6, 0.1} {
		c := tinyConfig(t)
		c.Training.MaxNorm = most
		results[most] = steps(t, newTrainer(t, c, train.Options{}), 3)
	}
	if free, loose := results[0][2], results[1e6][2]; free != loose {
		t.Errorf("a clip far above the norm changes step 3: %+v and %+v", free, loose)
	}
	if free, tight := results[0][0], results[0.1][0]; free != tight {
		t.Errorf("the norm reported for step 1 depends on clipping: %+v and %+v", free, tight)
	}
}

func TestNonFiniteLossStopsBeforeTheUpdate(t *testing.T) {
	c := tinyConfig(t)
	c.Optimizer.LR = 1e30
	c.LRScheduler.WarmupSteps = 0
	r := newTrainer(t, c, train.Options{})
	var err error
	var before map[string][]float32
	for range 3 {
		before = parameters(r)
		if _, err = r.Step(context.Background()); err != nil {
			break
		}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(err, graph.ErrNonFinite) {
		t.Fatalf("error %v, want one that is not finite", err)
	}
	for _, want := range []string{"train: step 2: ", "loss", "NaN", "optimizer.lr"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if name := sameBits(before, parameters(r)); name != "" {
		t.Errorf("%s was changed by the step that failed", name)
	}
	if err := r.Save(); err == nil {
		t.Error("saved the state of a failed step")
	}
	if state, skipped, err := (train.StateFolder{Path: c.StatePath()}).LoadLatest(); err != nil || state.Step != 1 || len(skipped) > 0 {
		t.Errorf("state on disk: %v, %v, want step 1", skipped, err)
	} else {
		state.Close()
	}
}

// steep has a finite loss and finite gradients with a norm beyond float32.
type steep struct{}

func (steep) Name() string                  { return "steep" }
func (steep) Vocab() int                    { return 257 }
func (steep) Parameters() int64             { return 4 }
func (steep) FLOPsPerToken(seq int) float64 { return 8 }
func (steep) Build(b *graph.Builder, in train.Inputs, _ train.Policies) {
	w := b.Parameter("w", device.Float32, graph.Constant(1e-30), 4)
	b.AddLoss("loss", graph.Sum(nn.Mul(w, b.Full(3e38, device.Float32, 4))))
}

func TestNonFiniteNormStopsBeforeTheUpdate(t *testing.T) {
	r := newTrainer(t, tinyConfig(t), train.Options{Model: steep{}})
	_, err := r.Step(context.Background())
	if !errors.Is(err, graph.ErrNonFinite) || !strings.Contains(err.Error(), "train: step 1: grad_norm is +Inf") {
		t.Fatalf("error %v", err)
	}
	if w := device.Elements[float32](r.Store().Variable("w").Tensor()); w[0] != 1e-30 {
		t.Errorf("w is %v after a step that must not update", w)
	}
}

func TestWarmStepAllocatesNothing(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Steps = 1000
	c.Training.GlobalBatchSize = 8
	r := newTrainer(t, c, train.Options{})
	steps(t, r, 3)
	ctx := context.Background()
	if n := testing.AllocsPerRun(20, func() {
		if _, err := r.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a warm step", n)
	}
}

func TestNewRefuses(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short.txt")
	if err := os.WriteFile(short, []byte("Call me\nIshmael."), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		change func(c *train.Config)
		want   []string
	}{
		{func(c *train.Config) { c.Training.Dataset = train.StringList{short} }, []string{"text too short", "short.txt", "33 are needed"}},
		{func(c *train.Config) { c.Training.Dataset = train.StringList{"moby_duck"} }, []string{"training.dataset", "moby_duck", `the built-in datasets are "moby_dick"`}},
		{func(c *train.Config) { c.Model.Name = "lama3" }, []string{"model.name", `did you mean "llama3"?`}},
		{func(c *train.Config) { c.Model.Flavor = "9B" }, []string{"model.flavor", "debugmodel"}},
		{func(c *train.Config) { c.Training.SeqLen = 0 }, []string{"training.seq_len", "at least 1"}},
		{func(c *train.Config) { c.ActivationCheckpoint.Save = train.StringList{"atention"} }, []string{"activation_checkpoint", "atention", "attention"}},
	} {
		c := tinyConfig(t)
		x.change(&c)
		r, err := train.New(context.Background(), c, train.Options{})
		var config *train.ConfigError
		if !errors.As(err, &config) {
			t.Errorf("error %v, want one of the config that says %q", err, x.want)
			if r != nil {
				r.Close()
			}
			continue
		}
		for _, want := range x.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	}
}
