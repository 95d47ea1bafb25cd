package train_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/generate"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/train"
)

// tinyLatent is tiny with latent attention and a mixture of experts.
func tinyLatent() train.Model { return latent(device.Float32) }

func latent(dtype device.DType) train.Model {
	return train.DeepSeekV3("tiny", deepseekv3.Config{Dim: 32, Layers: 2, DenseLayers: 1, Vocab: 257, Hidden: 48,
		Heads: 4, QLoRA: 16, KVLoRA: 16, NoPEDims: 8, RoPEDims: 4, ValueDim: 8, RoPE: attention.RoPE{Theta: 1e4},
		Experts: 4, TopK: 2, ExpertHidden: 32, SharedExperts: 1, Score: moe.Sigmoid, RouteNorm: true, RouteScale: 1,
		LoadBalance: 1e-3, NormEps: 1e-5, DType: dtype})
}

// trained trains a model and returns the folder of the run.
func trained(t *testing.T, m train.Model, change ...func(*train.Config)) string {
	t.Helper()
	c := tinyConfig(t)
	for _, f := range change {
		f(&c)
	}
	c.Optimizer.EMADecay = 0.5
	r := newTrainer(t, c, train.Options{Model: m})
	if err := r.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return c.Job.DumpFolder
}

// continued is what a state generates.
func continued(t *testing.T, path string, m train.Model, o generate.Options, s generate.Sampling) []int32 {
	t.Helper()
	return continuedBy(t, path, train.PretrainedOptions{Model: m, Threads: 2}, o, s)
}

func continuedBy(t *testing.T, path string, by train.PretrainedOptions, o generate.Options, s generate.Sampling) []int32 {
	t.Helper()
	p, err := train.OpenPretrained(path, by)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	o.MaxSeqLen = 100
	g, err := p.Generator(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var ids []int32
	for id, err := range g.Tokens(context.Background(), p.Tokenizer.Encode("Call me Ishmael."), 64, s) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if len(ids) != 64 {
		t.Fatalf("%d tokens", len(ids))
	}
	return ids
}

// A trained model generates the same tokens with the cache and without, from the run's
// folder, from one state and from where the run was moved to, and other tokens from
// another state.
func TestPretrainedGenerates(t *testing.T) {
	for name, m := range map[string]train.Model{"llama3": tiny(device.Float32), "deepseek_v3": tinyLatent()} {
		t.Run(name, func(t *testing.T) {
			run := trained(t, m)
			sampled := generate.Sampling{Temperature: 1, Seed: 4}
			state := filepath.Join(run, "state", "step-00000006")
			for _, s := range []generate.Sampling{{}, sampled} {
				want := continued(t, run, m, generate.Options{NoCache: true}, s)
				if got := continued(t, run, m, generate.Options{Chunk: 4}, s); !slices.Equal(got, want) {
					t.Errorf("%+v: with the cache %v, without %v", s, got, want)
				}
				if got := continued(t, state, m, generate.Options{}, s); !slices.Equal(got, want) {
					t.Errorf("%+v: from the state %v, from the run %v", s, got, want)
				}
			}
			newest := continued(t, run, m, generate.Options{}, sampled)
			if old := continued(t, filepath.Join(run, "state", "step-00000002"), m, generate.Options{}, sampled); slices.Equal(old, newest) {
				t.Errorf("steps 2 and 6 both generate %v", old)
			}
			if average := continuedBy(t, run, train.PretrainedOptions{Model: m, EMA: true}, generate.Options{}, sampled); slices.Equal(average, newest) {
				t.Errorf("the parameters and their average both generate %v", average)
			}
			moved := filepath.Join(t.TempDir(), "moved")
			if err := os.Rename(run, moved); err != nil {
				t.Fatal(err)
			}
			if got := continued(t, moved, m, generate.Options{}, sampled); !slices.Equal(got, newest) {
				t.Errorf("moved, it generates %v, before %v", got, newest)
			}
		})
	}
}

// A state does not depend on the ranks that trained it, nor on where the config says it
// lies.
func TestPretrainedOfRanksElsewhere(t *testing.T) {
	m := tinyLatent()
	run := trained(t, m, func(c *train.Config) {
		c.Parallelism.ExpertParallelDegree = 2
		c.State.Folder = t.TempDir()
	})
	want := continued(t, run, m, generate.Options{NoCache: true}, generate.Sampling{})
	if got := continued(t, run, m, generate.Options{}, generate.Sampling{}); !slices.Equal(got, want) {
		t.Errorf("with the cache %v, without %v", got, want)
	}
}

// noLogits is a model that was written for training alone.
type noLogits struct{ train.Model }

func TestPretrainedRefusals(t *testing.T) {
	run := trained(t, tiny(device.Float32))
	open := func(path string, m train.Model) error {
		p, err := train.OpenPretrained(path, train.PretrainedOptions{Model: m})
		if err != nil {
			return err
		}
		defer p.Close()
		g, err := p.Generator(generate.Options{MaxSeqLen: 8})
		if err != nil {
			return err
		}
		return g.Close()
	}
	empty, fresh := t.TempDir(), t.TempDir()
	text, err := os.ReadFile(filepath.Join(run, train.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fresh, train.ConfigFile), text, 0o666); err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(t.TempDir(), "step-00000006")
	if err := os.CopyFS(alone, os.DirFS(filepath.Join(run, "state", "step-00000006"))); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		path  string
		model train.Model
		want  string
	}{
		{filepath.Join(empty, "none"), nil, "give the job.dump_folder of a run"},
		{empty, nil, "no state; give the dump folder of a run"},
		{fresh, nil, "no state; give the dump folder of a run"},
		{alone, nil, "no folder above it has a config.toml"},
		{run, nil, "the model needs"}, // the config's llama3 debugmodel
		{run, noLogits{tiny(device.Float32)}, "llama3 tiny cannot generate: it has no method Logits"},
	} {
		if err := open(x.path, x.model); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.path, err, x.want)
		}
	}
	// A flipped bit in the tensors is seen when they are read.
	state := filepath.Join(run, "state", "step-00000006")
	file := filepath.Join(state, "tensors-00000.safetensors")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(data) / 2; i < len(data); i += 64 {
		data[i] ^= 1
	}
	data[len(data)/4] ^= 1
	if err := os.WriteFile(file, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := open(state, tiny(device.Float32)); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a broken state: %v", err)
	}
	p, err := train.OpenPretrained(run, train.PretrainedOptions{Model: tiny(device.Float32)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Step() != 4 || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "step-00000006 is not used") {
		t.Errorf("with a broken newest state: step %d, warnings %q", p.Step(), p.Warnings)
	}
}

// Text can be generated between the steps of a run, on its Store: training goes on as if
// nothing had been, and the cache is no part of the state.
func TestGeneratingWhileTraining(t *testing.T) {
	m := tinyLatent()
	losses := func(sample bool) (losses []float64, folder string) {
		c := tinyConfig(t)
		r := newTrainer(t, c, train.Options{Model: m})
		for range 3 {
			step, err := r.Step(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			losses = append(losses, step.Loss)
			if !sample {
				continue
			}
			g, err := generate.New(r.Store(), m.(generate.Model), generate.Options{MaxSeqLen: 300, Chunk: 256})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, err := range g.Tokens(context.Background(), make([]int32, 290), 8, generate.Sampling{}) {
				if n++; err != nil {
					t.Fatal(err)
				}
			}
			if err := g.Close(); err != nil || n != 8 {
				t.Fatalf("%d tokens, %v", n, err)
			}
		}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
		return losses, c.Job.DumpFolder
	}
	want, a := losses(false)
	got, b := losses(true)
	if !slices.Equal(got, want) {
		t.Errorf("losses %v, without generating %v", got, want)
	}
	for _, folder := range []string{a, b} {
		s, err := train.OpenState(filepath.Join(folder, "state", "step-00000003"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, x := range s.Tensors() {
			if strings.Contains(x.Name, "cache") {
				t.Errorf("the state holds %s", x.Name)
			}
		}
	}
}
