package train_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/internal/live/livetest"
	"github.com/lethe-go/lethe/train"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// liveAddress takes the address from what a run prints.
type liveAddress struct{ address string }

func (l *liveAddress) Write(p []byte) (int, error) {
	if rest, ok := strings.CutPrefix(string(p), "live:    http://"); ok {
		l.address, _, _ = strings.Cut(rest, "/")
	}
	return len(p), nil
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, r.Status, err)
	}
	return string(text)
}

// afterStep is a hook at one step.
func afterStep(step int, f func(r train.StepResult)) train.Hook {
	return train.Hook{Priority: 1, AfterStep: func(_ context.Context, t *train.Trainer, r train.StepResult) error {
		if t.Steps() == step {
			f(r)
		}
		return nil
	}}
}

// While a run is on it shows its page, and its numbers as an independent reader of
// Prometheus' format reads them.
func TestLive(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Steps, c.Metrics.HTTP = 4, ":0"
	var log liveAddress
	looked := false
	look := afterStep(3, func(r train.StepResult) {
		looked = true
		if page := get(t, "http://"+log.address+"/"); !strings.Contains(page, "step 3 of 4") {
			t.Error("the page is not about step 3")
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(get(t, "http://"+log.address+"/metrics")))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]float64{"lethe_step": 3, "lethe_loss": r.Loss, "lethe_grad_norm": r.GradNorm, "lethe_learning_rate": r.LearningRate} {
			if got := families[name].GetMetric()[0].GetGauge().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if got := families["lethe_tokens_total"].GetMetric()[0].GetCounter().GetValue(); got != float64(3*r.Tokens) {
			t.Errorf("%v tokens, want three times %d", got, r.Tokens)
		}
		if s := families["lethe_step_seconds"].GetMetric()[0].GetSummary(); s.GetSampleCount() != 3 || s.GetSampleSum() <= 0 {
			t.Errorf("steps: %v", s)
		}
		if got := families["lethe_memory_bytes"].GetMetric()[0].GetGauge().GetValue(); got <= 0 {
			t.Errorf("memory %v", got)
		}
	})
	if err := newTrainer(t, c, train.Options{Log: &log, Hooks: []train.Hook{look}}).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !looked {
		t.Fatal("nobody looked")
	}
	if c, err := net.Dial("tcp", log.address); err == nil {
		c.Close()
		t.Error("the server outlives the run")
	}
}

// A run under 1,000 connections of those who send nothing, send garbage, send a request
// byte by byte or do not read the answer makes all of its steps, with the same bits.
func TestLiveUnderAttack(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Steps = 30
	trainAll(t, c)
	attacked := c
	attacked.Job.DumpFolder = t.TempDir()
	attacked.Metrics.HTTP = "127.0.0.1:0"
	var log liveAddress
	var attack *livetest.Attack
	crowd := train.Hook{
		Start:  func(context.Context, *train.Trainer) error { attack = livetest.Start(log.address, 1000); return nil },
		Finish: func(context.Context, *train.Trainer, error) error { attack.Stop(); return nil },
	}
	if err := newTrainer(t, attacked, train.Options{Log: &log, Hooks: []train.Hook{crowd}}).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, c, attacked)
}

func TestLiveAddressRefusals(t *testing.T) {
	c := tinyConfig(t)
	c.Metrics.HTTP = "8080"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "metrics.http") || !strings.Contains(err.Error(), `":8080"`) {
		t.Errorf("%v", err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c.Metrics.HTTP = taken.Addr().String()
	if err := newTrainer(t, c, train.Options{}).Run(context.Background()); err == nil || !strings.Contains(err.Error(), "choose another address") {
		t.Errorf("an address that is taken: %v", err)
	}
}
