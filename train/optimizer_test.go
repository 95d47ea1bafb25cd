package train

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
)

// Muon's products, and with them all it trains, are the same bits on any number of
// threads.
func TestUpdateIsTheSameOnAnyThreads(t *testing.T) {
	g := readOptimizerGolden(t)
	for _, x := range g.Cases {
		c := x.parse(t, "float32", g.Steps)
		var want *updater
		for _, workers := range []int{1, 3} {
			u := newUpdater(t, c, g.Seed, workers)
			u.run(5)
			if want == nil {
				want = u
				continue
			}
			for _, v := range u.rank.store.Variables() {
				if string(memory(v)) != string(memory(want.rank.store.Variable(v.Name))) {
					t.Errorf("%s: %s differs", x.Name, v.Name)
				}
			}
		}
	}
}

func TestWarmUpdateAllocatesNothing(t *testing.T) {
	g := readOptimizerGolden(t)
	for _, x := range g.Cases {
		u := newUpdater(t, x.parse(t, "float32", g.Steps), g.Seed, 2)
		u.run(2)
		ctx := context.Background()
		if n := testing.AllocsPerRun(5, func() {
			if err := u.rank.update(ctx, 3, 1); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations in a warm update", x.Name, n)
		}
	}
}

// What an optimizer keeps is what its documentation says.
func TestOptimizerState(t *testing.T) {
	const moments = "optimizer.exp_avg. optimizer.exp_avg_sq."
	for name, want := range map[string]string{
		"AdamW, linear, clipped": moments, "Adam, square root, clipped": moments, "SGD": "", "SGD, Nesterov": "optimizer.momentum_buffer.",
		"AdamW, moving average": "ema. " + moments,
	} {
		g := readOptimizerGolden(t)
		for _, x := range g.Cases {
			if x.Name != name {
				continue
			}
			u := newUpdater(t, x.parse(t, "float32", g.Steps), g.Seed, 1)
			have := map[string]int{}
			for _, v := range u.rank.store.Variables() {
				if v.Kind == graph.State {
					for p := range g.Shapes {
						if prefix, ok := strings.CutSuffix(v.Name, p); ok {
							have[prefix]++
						}
					}
				}
			}
			if len(have) != len(strings.Fields(want)) {
				t.Errorf("%s keeps %v, want %q", name, have, want)
			}
			for _, prefix := range strings.Fields(want) {
				if have[prefix] != len(g.Shapes) {
					t.Errorf("%s keeps %d tensors %s, want one for each of %d parameters", name, have[prefix], prefix, len(g.Shapes))
				}
			}
		}
	}
}

func tinyLlama() Model {
	return Llama3("tiny", llama3.Config{Dim: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, Hidden: 48, Vocab: 257,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: device.Float32})
}

func optimizerConfig(t *testing.T, name string) Config {
	c := DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.Threads, c.Training.Steps = 32, 2, 2, 6
	c.Optimizer.Name = name
	c.Optimizer.EMADecay = 0.9
	c.Validation.Enable, c.Validation.Steps = true, 2
	c.State.Enable = false
	return c
}

func TestOptimizersMeasuredPeakIsPredicted(t *testing.T) {
	for _, name := range optimizerNames {
		c := optimizerConfig(t, name)
		c.Validation.UseEMA = true
		all, err := MeasurePeaks(context.Background(), c, "none", Options{Model: tinyLlama()})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Peak != m.Predicted || m.Differs != "" || !m.SameLoss {
				t.Errorf("%s: %+v: want the predicted peak, and the same loss when dead memory is poisoned", name, m)
			}
			if m.Program == "update" && name == muonName && m.Peak == 0 {
				t.Error("Muon works without scratch")
			}
		}
	}
}

// Held-out data is measured with the average: putting it in the parameters' place by
// hand gives the same loss.
func TestValidationUsesTheAverage(t *testing.T) {
	ctx := context.Background()
	c := optimizerConfig(t, adamWName)
	c.Optimizer.LR = 1e-2
	c.LRScheduler.WarmupSteps = 0
	open := func(use bool) *Trainer {
		c.Validation.UseEMA = use
		r, err := New(ctx, c, Options{Model: tinyLlama()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	averaged, plain := open(true), open(false)
	if _, err := averaged.Evaluate(ctx); err == nil || !strings.Contains(err.Error(), "no moving average before the first step") {
		t.Errorf("before the first step: %v", err)
	}
	for range 3 {
		for _, r := range []*Trainer{averaged, plain} {
			if _, err := r.Step(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	loss := func(r *Trainer) float64 {
		e, err := r.Evaluate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return e.Loss
	}
	before := loss(plain)
	for _, v := range plain.Store().Variables() {
		if v.Kind == graph.Parameter {
			copy(memory(v), memory(plain.Store().Variable(averagePrefix+v.Name)))
		}
	}
	if have, want := loss(averaged), loss(plain); have != want || have == before {
		t.Errorf("loss with the average %v, want %v, not that of the parameters %v", have, want, before)
	}
}

func TestGroupsAreChecked(t *testing.T) {
	half := 0.5
	for _, x := range []struct {
		groups []OptimizerGroup
		want   string
	}{
		{[]OptimizerGroup{{Pattern: "atention"}}, `optimizer.groups[0].pattern: "atention" matches no parameter; near names: attention`},
		{[]OptimizerGroup{{Pattern: "layers.*.wq"}}, `optimizer.groups[0].pattern: "layers.*.wq" matches no parameter; near names: layers.*.attention.wq`},
		{[]OptimizerGroup{{Pattern: "zzzzzzzzzzzzzzzzzzzz"}}, `matches no parameter; parameters are called like tok_embeddings.weight`},
		{[]OptimizerGroup{{Pattern: "layers", LR: &half}, {Pattern: "ffn_norm"}},
			`optimizer.groups[1].pattern: "ffn_norm" matches only parameters of earlier groups, such as layers.0.ffn_norm.weight of "layers": the first match wins; put it before that`},
		{[]OptimizerGroup{{Pattern: "a..b"}}, `optimizer.groups[0].pattern: a pattern is segments joined by dots, none of them empty: have "a..b"`},
		{[]OptimizerGroup{{}}, `optimizer.groups[0].pattern: a pattern is segments`},
		{[]OptimizerGroup{{Pattern: "layers", Name: "Moun"}}, `optimizer.groups[0].name: unknown name: "Moun"; known are "AdamW", "Adam", "SGD", "Muon"`},
		{[]OptimizerGroup{{Pattern: "layers", Beta1: new(float64(1))}}, `optimizer.groups[0].beta1: must be within [0, 1): 1`},
		{[]OptimizerGroup{{Pattern: "layers", LR: new(float64)}}, `optimizer.groups[0].lr: must be positive and finite: 0`},
	} {
		c := optimizerConfig(t, adamWName)
		c.Optimizer.Groups = x.groups
		_, err := New(context.Background(), c, Options{Model: tinyLlama()})
		var config *ConfigError
		if !errors.As(err, &config) || !strings.Contains(err.Error(), "train: config: ") || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error %v, want one of the config that says %s", err, x.want)
		}
	}
	c := optimizerConfig(t, adamWName)
	c.Optimizer.EMADecay, c.Validation.UseEMA = 0, true
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "validation.use_ema: needs a moving average: true; set optimizer.ema_decay") {
		t.Errorf("%v", err)
	}
}

// What the update of a matrix costs, and of a stack of its like, counted by hand.
func TestMuonCost(t *testing.T) {
	const rows, columns, experts = 6, 4, 3                                                                              // the square is 4 × 4
	iteration := 2*4*6*4 /* XᵀX */ + 2*4*4*4 /* A² */ + 2*6*4*4 /* X·(…) */ + 2*4*4 /* cA */ + 2*4*4 /* + bA */ + 2*6*4 /* aX */
	one := 5*iteration + 14*rows*columns
	scalar, matrix := device.NewSpec(device.Float64), device.NewSpec(device.Float32, rows, columns)
	stack := device.NewSpec(device.Float32, experts, rows, columns)
	for _, x := range []struct {
		in          device.Spec
		flops       int
		read, wrote int64
	}{
		{matrix, one, 3 * 4 * rows * columns, 2 * 4 * rows * columns},
		{stack, experts * one, 3 * 4 * experts * rows * columns, 2 * 4 * experts * rows * columns},
	} {
		in := []device.Spec{x.in, x.in, x.in, scalar}
		if c := (muon{}).Cost(in); c.ExecutedFLOPs != float64(x.flops) || c.BytesRead != x.read || c.BytesWritten != x.wrote || c.ModelFLOPs != 0 {
			t.Errorf("%v: %+v, want %d FLOPs, %d bytes read, %d written", x.in, c, x.flops, x.read, x.wrote)
		}
		// One matrix at a time: two of its size, two squares and three scalars.
		if w := (muon{}).Workspace(in, 1); w != 4*(2*rows*columns+2*4*4)+8+8+4 {
			t.Errorf("%v: %d bytes of scratch", x.in, w)
		}
	}
}

// Muon is for matrices but embeddings and the output layer; these too if a group names it.
func TestMuonIsForMatrices(t *testing.T) {
	for config, want := range map[string]string{
		`[optimizer]
name = "Muon"`: "adamw adamw muon adamw muon muon adamw",
		`[[optimizer.groups]]
pattern = "*"
name = "Muon"`: "muon adamw muon adamw muon muon muon",
		`[optimizer]
name = "Muon"
[[optimizer.groups]]
pattern = "*"
lr = 1`: "adamw adamw muon adamw muon muon adamw",
		`[optimizer]
name = "Muon"
[[optimizer.groups]]
pattern = "experts"
name = "AdamW"`: "adamw adamw muon adamw muon adamw adamw",
	} {
		u := newUpdater(t, optimizerCase{Config: config}.parse(t, "float32", 2), 1, 1)
		kinds := map[string]string{}
		for _, n := range u.rank.programs.update.Graph.Nodes {
			if name, ok := strings.CutPrefix(n.Scope, "optimizer."); ok && n.IsOp() {
				kinds[name] += n.Kind
			}
		}
		var have []string
		for _, p := range []string{"tok_embeddings.weight", "layers.0.norm.weight", "layers.0.wq.weight", "layers.0.wq.bias",
			"layers.0.wo.weight", "layers.0.experts.w1", "output.weight"} {
			have = append(have, kinds[p])
		}
		if got := strings.Join(have, " "); got != want {
			t.Errorf("%s\nchanges parameters by %s, want %s", config, got, want)
		}
	}
}
