package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

func TestRunReports(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Steps = 5
	c.Metrics.LogFreq = 2
	c.Validation.Enable, c.Validation.Freq, c.Validation.Steps = true, 3, 2
	var log bytes.Buffer
	if err := newTrainer(t, c, train.Options{Log: &log}).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^model:   llama3 tiny, 31,968 parameters, float32$`,
		`(?m)^data:    moby_dick/train: 124 documents, 1,086,856 tokens; moby_dick/held_out: 14 documents, 129,560 tokens`,
		`(?m)^plan:    activation_checkpoint.mode=selective: predicted peak 1\.10 MiB \(.* \+ 374\.62 KiB copy of the state\)`,
		`(?m)^device:  cpu, \S+ kernels, 2 threads, peak .*FLOP/s \(measured: .*\)$`,
		`(?m)^step:  1  loss: +5\.\d{5}  grad_norm: +\d+\.\d{4}  memory: +0\.00GiB\(\d+\.\d\d%\)  tps: [\d,]+  tflops: \d+\.\d\d  mfu: \d+\.\d\d%$`,
		`(?m)^held-out: step 3  loss: `,
		`(?m)^held-out: step 5  loss: `,
		`(?m)^held-out loss \d\.\d{4} nats a byte is not below the byte-bigram entropy of the held-out text, 2\.3724 \(measured on a part of it`,
	} {
		if !regexp.MustCompile(want).MatchString(log.String()) {
			t.Errorf("no line like %s in\n%s", want, &log)
		}
	}
	lines, err := train.ReadMetrics(filepath.Join(c.Job.DumpFolder, train.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	var reported []int
	for _, m := range lines {
		reported = append(reported, m.Step)
		if m.MemoryBytes <= 0 || m.TPS <= 0 || m.MFU <= 0 || m.ExecutedTFLOPS <= 0 || m.SavedBytes <= 0 || m.RecomputedFLOPs <= 0 || m.Seconds <= 0 {
			t.Errorf("step %d: %+v", m.Step, m)
		}
	}
	if fmt.Sprint(reported) != "[1 2 4 5]" {
		t.Errorf("steps %v are reported, want 1, every second, and the last", reported)
	}
}

// stopAt ends a context when a step's line is logged.
type stopAt struct {
	line string
	stop func()
}

func (s stopAt) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), s.line) {
		s.stop()
	}
	return len(p), nil
}

// runInterrupted stops a run at a step, as a signal does.
func runInterrupted(t *testing.T, c train.Config, step int) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	r := newTrainer(t, c, train.Options{Log: stopAt{fmt.Sprintf("step: %2d ", step), func() { cancel(errors.New("signal")) }}})
	err := r.Run(ctx)
	if r.Steps() != step {
		t.Errorf("%d steps were made, the run was told to stop in step %d", r.Steps(), step)
	}
	return err
}

func TestStopAndResumeEqualsNeverStopping(t *testing.T) {
	whole := tinyConfig(t)
	whole.Training.GlobalBatchSize = 8
	trainAll(t, whole)
	parts := whole
	parts.Job.DumpFolder = t.TempDir()
	for _, step := range []int{1, 3, 4} { // between, and at, the saves of the interval
		if err := runInterrupted(t, parts, step); !errors.Is(err, train.ErrStopped) {
			t.Fatalf("error %v, want ErrStopped", err)
		}
	}
	trainAll(t, parts)
	wantEqual(t, whole, parts)
}

func wantEqual(t *testing.T, a, b train.Config) {
	t.Helper()
	r, err := train.Compare(a.Job.DumpFolder, b.Job.DumpFolder)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Equal() || r.Steps != a.Training.Steps || r.StateStep != a.Training.Steps {
		t.Errorf("%v", r)
	}
}

func TestStopWithoutState(t *testing.T) {
	c := tinyConfig(t)
	c.State = train.StateConfig{}
	err := runInterrupted(t, c, 2)
	if err == nil || errors.Is(err, train.ErrStopped) || !strings.Contains(err.Error(), "state.enable") {
		t.Errorf("error %v: nothing was saved, so the run cannot go on", err)
	}
}

// A run that is told to stop while it measures held-out data loses nothing.
func TestStopInEvaluation(t *testing.T) {
	c := tinyConfig(t)
	c.Validation.Enable, c.Validation.Freq = true, 3
	if err := runInterrupted(t, c, 3); !errors.Is(err, train.ErrStopped) {
		t.Errorf("error %v, want ErrStopped", err)
	}
}

// The plan and the number of threads change no bit.
func TestModesAndThreadsTrainTheSameBits(t *testing.T) {
	var first *train.Config
	memory := map[string]int64{}
	for _, mode := range []string{"none", "selective", "full"} {
		for threads := 1; threads <= 2; threads++ {
			c := tinyConfig(t)
			c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 16, 32
			c.Training.Steps = 3
			c.Training.Threads = threads
			c.ActivationCheckpoint.Mode = mode
			trainAll(t, c)
			lines, err := train.ReadMetrics(filepath.Join(c.Job.DumpFolder, train.MetricsFile))
			if err != nil {
				t.Fatal(err)
			}
			memory[mode] = lines[0].MemoryBytes
			if first == nil {
				first = &c
			} else {
				wantEqual(t, *first, c)
			}
		}
	}
	if !(memory["full"] < memory["selective"] && memory["selective"] < memory["none"]) {
		t.Errorf("memory %v, want full < selective < none", memory)
	}
}

func TestResumeChecksTheState(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Steps = 2
	trainAll(t, c)

	// More steps go on, with a word about it.
	longer := c
	longer.Training.Steps = 3
	var log bytes.Buffer
	r := newTrainer(t, longer, train.Options{Log: &log})
	if r.Steps() != 2 || !strings.Contains(log.String(), "another config") {
		t.Errorf("resumed at step %d with the log %q", r.Steps(), log.String())
	}

	// A finished run with another config is not this one.
	other := c
	other.Optimizer.LR = 1
	_, err := train.New(context.Background(), other, train.Options{Model: tiny(device.Float32)})
	var config *train.ConfigError
	if !errors.As(err, &config) || !strings.Contains(err.Error(), "job.dump_folder") {
		t.Errorf("error %v for the state of another config", err)
	}

	// The finished run itself has nothing left to do.
	log.Reset()
	if err := newTrainer(t, c, train.Options{Log: &log}).Run(context.Background()); err != nil || !strings.Contains(log.String(), "nothing left to train") {
		t.Errorf("error %v, log %s", err, &log)
	}
}
