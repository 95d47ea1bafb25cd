package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/train"
)

// from is a config that starts where another run has saved.
func from(t *testing.T, c train.Config, change func(*train.StateConfig)) train.Config {
	c.State.InitialLoadPath = c.Job.DumpFolder
	c.Job.DumpFolder = t.TempDir()
	change(&c.State)
	return c
}

// source is a run of six steps and what its last state holds.
func source(t *testing.T) (train.Config, map[string][]float32) {
	c := tinyConfig(t)
	trainAll(t, c)
	return c, stateOf(t, c, c.Training.Steps)
}

// initial are the values that nothing was loaded over.
func initial(t *testing.T) map[string][]float32 {
	return parameters(newTrainer(t, tinyConfig(t), train.Options{}))
}

func TestInitialLoad(t *testing.T) {
	c, saved := source(t)
	fresh := initial(t)
	is := func(name string, parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(name, p) {
				return true
			}
		}
		return false
	}
	for _, x := range []struct {
		about  string
		change func(*train.StateConfig)
		loaded func(name string) bool
		step   int
		log    string
	}{
		{"the model", func(*train.StateConfig) {}, func(n string) bool { return !is(n, "optimizer.") }, 0, "begins at step 0"},
		{"all", func(s *train.StateConfig) { s.InitialLoadModelOnly = false }, func(string) bool { return true }, 6, "goes on after step 6"},
		{"only attention", func(s *train.StateConfig) { s.LoadOnly = []string{"layers.*.attention"} },
			func(n string) bool { return !is(n, "optimizer.") && is(n, ".attention.") }, 0, "have their initial values: "},
		{"but the output", func(s *train.StateConfig) {
			s.InitialLoadModelOnly = false
			s.ExcludeFromLoading = []string{"output", "layers.1.feed_forward"}
		}, func(n string) bool { return !is(n, "output.", "layers.1.feed_forward.") }, 6, ""},
		{"exclude is stronger", func(s *train.StateConfig) {
			s.LoadOnly, s.ExcludeFromLoading = []string{"layers.0"}, []string{"attention"}
		}, func(n string) bool { return !is(n, "optimizer.") && is(n, "layers.0.") && !is(n, ".attention.") }, 0, ""},
		{"a folder of states", func(s *train.StateConfig) { s.InitialLoadPath = c.StatePath() }, func(n string) bool { return !is(n, "optimizer.") }, 0, ""},
	} {
		var log bytes.Buffer
		c := from(t, c, x.change)
		c.Training.Steps = 8
		r := newTrainer(t, c, train.Options{Log: &log})
		if r.Steps() != x.step || !strings.Contains(log.String(), x.log) {
			t.Errorf("%s: at step %d, log %s", x.about, r.Steps(), &log)
		}
		loaded := 0
		for name, got := range parameters(r) {
			want := fresh
			if x.loaded(name) {
				want = saved
				loaded++
			}
			if sameBits(map[string][]float32{name: got}, want) != "" {
				t.Errorf("%s: %s: loaded or not, against what was asked", x.about, name)
			}
		}
		if loaded == 0 {
			t.Errorf("%s: nothing is loaded", x.about)
		}
	}
}

// A run that was started from another's state, optimizer and all, trains what the other
// would have; and after a stop it goes on from its own state.
func TestInitialLoadGoesOn(t *testing.T) {
	whole := tinyConfig(t)
	whole.Training.Steps = 8
	whole.State.Interval, whole.State.KeepLatestK = 4, 0
	trainAll(t, whole)
	fork := whole
	fork.Job.DumpFolder = t.TempDir()
	fork.State.InitialLoadPath = filepath.Join(whole.StatePath(), "step-00000004")
	fork.State.InitialLoadModelOnly = false
	if err := runInterrupted(t, fork, 6); !errors.Is(err, train.ErrStopped) {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := newTrainer(t, fork, train.Options{Log: &log})
	if err := r.Run(context.Background()); err != nil || strings.Contains(log.String(), "load:") || !strings.Contains(log.String(), "after step 6") {
		t.Errorf("%v, log %s", err, &log)
	}
	if name := sameBits(stateOf(t, whole, 8), stateOf(t, fork, 8)); name != "" {
		t.Errorf("%s differs", name)
	}
}

func TestInitialLoadRefuses(t *testing.T) {
	c, _ := source(t)
	model := func(layers, hidden int) train.Model {
		return train.Llama3("other", llama3.Config{Dim: 32, Layers: layers, Heads: 4, KVHeads: 2, HeadDim: 8, Hidden: hidden, Vocab: 257,
			NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: device.Float32})
	}
	for _, x := range []struct {
		change func(*train.StateConfig)
		model  train.Model
		want   string
	}{
		{func(s *train.StateConfig) { s.LoadOnly = []string{"layers.*.atention"} }, nil, `state.load_only: "layers.*.atention" matches no tensor of the model or the state; near names are "layers.*.attention"`},
		{func(s *train.StateConfig) { s.ExcludeFromLoading = []string{"a..b"} }, nil, "state.exclude_from_loading: a pattern is segments joined by dots"},
		{func(s *train.StateConfig) { s.ExcludeFromLoading = []string{"*"} }, nil, "nothing of it is to be loaded"},
		{func(s *train.StateConfig) { s.InitialLoadPath += "/missing" }, nil, "give the dump folder of a run"},
		{func(s *train.StateConfig) { s.InitialLoadModelOnly = false }, nil, "is at step 6, and training.steps is 6"},
		{func(*train.StateConfig) {}, model(3, 48), "step-00000006: does not hold 9 tensors that the model has: layers.2."},
		{func(*train.StateConfig) {}, model(1, 48), "holds 9 tensors that the model does not have: layers.1."},
		{func(*train.StateConfig) {}, model(2, 64), "6 tensors do not fit: layers.0.feed_forward.w1.weight is float32[48 32] there, the model needs float32[64 32]"},
	} {
		_, err := train.New(context.Background(), from(t, c, x.change), train.Options{Model: orTiny(x.model)})
		var config *train.ConfigError
		if !errors.As(err, &config) || !strings.Contains(fmt.Sprint(err), x.want) || strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("error %v, want one line that says %q", err, x.want)
		}
	}
	// What does not fit can be left out.
	other := from(t, c, func(s *train.StateConfig) { s.ExcludeFromLoading = []string{"layers.2"} })
	newTrainer(t, other, train.Options{Model: model(3, 48)})
	// Without a source the lists mean nothing.
	c.State.LoadOnly = []string{"output"}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "state.load_only: needs state.initial_load_path") {
		t.Errorf("%v", err)
	}
}

func orTiny(m train.Model) train.Model {
	if m == nil {
		return tiny(device.Float32)
	}
	return m
}
