package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/lethe-go/lethe/internal/atomicfile"
)

// ErrStopped is returned by [Trainer.Run] if its context ended and the state was
// saved: the same config goes on from there.
var ErrStopped = errors.New("stopped")

// Run trains up to training.steps, reporting, saving and measuring held-out data
// as the config says. When ctx ends it finishes the step, saves and returns an
// error that wraps ErrStopped, or another one if it may not save.
func (t *Trainer) Run(ctx context.Context) error {
	l := &loop{Trainer: t, usage: t.ranks[0].programs.usage(t.config.Training.Microbatches()), memory: machineMemory()}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	err := l.run(ctx)
	return errors.Join(err, l.close())
}

// loop is what one call of Run keeps.
type loop struct {
	*Trainer
	metrics *MetricsWriter
	usage   usage
	memory  int64   // this process may use, in bytes; 0 if unknown
	peak    float64 // FLOP/s of float32; NaN if it says nothing about the trained dtype
	peakOf  string  // what was measured

	since  time.Time // of the last line
	tokens int       // since the last line
	steps  int       // since the last line
	judged int       // step at which held-out data was measured last
}

// prepare opens what the run writes to and tells what it is going to do.
func (l *loop) prepare(ctx context.Context) error {
	folder := l.config.Job.DumpFolder
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fmt.Errorf("train: job.dump_folder: %w; name a folder that can be written", err)
	}
	text, err := l.config.TOML()
	if err != nil {
		return fmt.Errorf("train: config: %w", err)
	}
	if err := atomicfile.WriteFile(filepath.Join(folder, ConfigFile), text); err != nil {
		return fmt.Errorf("train: config: %w; make job.dump_folder writable", err)
	}
	l.metrics, err = OpenMetrics(filepath.Join(folder, MetricsFile), l.step)
	if err != nil {
		return err
	}
	if err = l.measurePeak(); err == nil {
		err = l.announce(ctx)
	}
	if err != nil {
		l.metrics.Close()
	}
	return err
}

// measurePeak leaves NaN for another dtype than the measured one: MFU is then N/A.
func (l *loop) measurePeak() (err error) {
	l.peak = math.NaN()
	if l.config.Training.DType == "float32" {
		l.peak, l.peakOf, err = peakFLOPs(l.device)
	}
	return err
}

func (l *loop) close() error { return l.metrics.Close() }

func (l *loop) run(ctx context.Context) error {
	// A step that has begun is finished: half of one is of no use to anybody.
	whole := context.WithoutCancel(ctx)
	l.since, l.judged = time.Now(), -1
	for l.step < l.config.Training.Steps {
		if ctx.Err() != nil {
			return l.stop(ctx)
		}
		r, err := l.Step(whole)
		if err != nil {
			return err
		}
		if err := l.after(ctx, r); err != nil {
			return l.orStop(ctx, err)
		}
	}
	if l.saved != l.step {
		if err := l.save(); err != nil {
			return err
		}
	}
	if l.judged != l.step {
		return l.orStop(ctx, l.judge(ctx))
	}
	return nil
}

// after does what is due behind a step.
func (l *loop) after(ctx context.Context, r StepResult) error {
	l.tokens += r.Tokens
	l.steps++
	if l.step == 1 || l.step%l.config.Metrics.LogFreq == 0 || l.step == l.config.Training.Steps {
		if err := l.report(r); err != nil {
			return err
		}
	}
	if s := l.config.State; s.Enable && l.step%s.Interval == 0 {
		if err := l.save(); err != nil {
			return err
		}
	}
	if v := l.config.Validation; v.Enable && l.step%v.Freq == 0 {
		return l.judge(ctx)
	}
	return nil
}

// report writes one line to the console and to metrics.jsonl.
func (l *loop) report(r StepResult) error {
	seconds := time.Since(l.since).Seconds()
	tps := float64(l.tokens) / seconds
	flops := tps * l.model.FLOPsPerToken(l.config.Training.SeqLen)
	m := Metrics{
		Step: l.step, Loss: Float(r.Loss), GradNorm: Float(r.GradNorm),
		MemoryBytes: l.memoryBytes(),
		TPS:         Float(tps), TFLOPS: Float(flops / 1e12), MFU: Float(100 * flops / l.peak),
		ExecutedTFLOPS: Float(float64(l.steps*len(l.ranks)) * l.usage.executedFLOPs / seconds / 1e12),
		SavedBytes:     l.usage.savedBytes, RecomputedFLOPs: int64(l.usage.recomputedFLOPs), HostSyncs: int64(l.usage.hostSyncs),
		Seconds: Float(seconds),
	}
	if l.memory > 0 {
		m.MemoryPct = Float(100 * float64(m.MemoryBytes) / float64(l.memory))
	}
	l.print("%s", m)
	l.resetClock()
	return l.metrics.Write(m)
}

// memoryBytes is the high-water mark of all ranks of this process since the last
// report. A static program needs the same in every run.
func (l *loop) memoryBytes() int64 {
	var sum int64
	for _, r := range l.ranks {
		peak := r.peak
		for _, p := range r.programs.all() {
			if p != r.programs.first && p != r.programs.more || r.peak == 0 {
				peak = max(peak, p.Bound().Peak)
			}
		}
		sum += r.store.Bytes() + peak
		r.peak = 0
	}
	return sum
}

func (l *loop) resetClock() { l.since, l.tokens, l.steps = time.Now(), 0, 0 }

// offClock runs something that is not training, and keeps its time out of the
// rates.
func (l *loop) offClock(f func() error) error {
	start := time.Now()
	err := f()
	l.since = l.since.Add(time.Since(start))
	return err
}

// save makes the metrics durable first: a resumed run has a line for every
// reported step before its state.
func (l *loop) save() error {
	if !l.config.State.Enable {
		return nil
	}
	return l.offClock(func() error {
		if err := l.metrics.Sync(); err != nil {
			return err
		}
		if err := l.Save(); err != nil {
			return err
		}
		l.print("state:   step %d saved in %s", l.step, l.config.StatePath())
		return nil
	})
}

// judge measures the held-out data. After the last step it also says what that
// is worth.
func (l *loop) judge(ctx context.Context) error {
	if !l.config.Validation.Enable {
		return nil
	}
	return l.offClock(func() error {
		e, err := l.Evaluate(ctx)
		if err != nil {
			return err
		}
		l.judged = l.step
		l.print("held-out: step %d  loss: %8.5f  over %s predictions", l.step, e.Loss, groupThousands(float64(e.Predictions), 0))
		if l.step < l.config.Training.Steps {
			return nil
		}
		return l.verdict(ctx, e)
	})
}

// stop is the orderly end of a run that was told to end.
func (l *loop) stop(ctx context.Context) error {
	if !l.config.State.Enable {
		return fmt.Errorf("train: stopped at step %d: %w; nothing was saved, since state.enable is false", l.step, context.Cause(ctx))
	}
	if l.saved != l.step {
		if err := l.save(); err != nil {
			return err
		}
	}
	return fmt.Errorf("train: %w at step %d of %d (%w); the same command goes on from there", ErrStopped, l.step, l.config.Training.Steps, context.Cause(ctx))
}

// orStop turns the error of what ctx interrupted into an orderly end.
func (l *loop) orStop(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return l.stop(ctx)
	}
	return err
}

func (l *loop) print(format string, args ...any) { fmt.Fprintf(l.options.Log, format+"\n", args...) }
