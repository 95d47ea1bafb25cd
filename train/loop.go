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
	"github.com/lethe-go/lethe/internal/folderlock"
	"github.com/lethe-go/lethe/moe"
)

// ErrStopped is returned by [Trainer.Run] if its context ended and the state was
// saved: the same config goes on from there.
var ErrStopped = errors.New("stopped")

// Run trains up to training.steps, reporting, saving and measuring held-out data
// as the config says. When ctx ends it finishes the step, saves and returns an
// error that wraps ErrStopped, or another one if it may not save.
//
// Of a job of several processes all call Run. They stop together, after the step in which
// the context of one of them has ended; the first one alone reports.
func (t *Trainer) Run(ctx context.Context) error {
	l := &loop{Trainer: t, signal: ctx, usage: t.ranks[0].programs.usage(t.config.Training.Microbatches()), memory: machineMemory()}
	if t.world.several() {
		var over context.CancelFunc
		ctx, over = l.untilAllStop()
		defer over()
	}
	defer l.showProgress()()
	l.hooks = newHooks(l.ownHooks(), t.options.Hooks)
	if err := l.prepare(ctx); err != nil {
		t.abort(err)
		return err
	}
	err := l.run(ctx)
	if err != nil && !errors.Is(err, ErrStopped) {
		t.abort(err)
	}
	err = errors.Join(err, l.settle(ctx, true))
	return errors.Join(l.hooks.finish(ctx, t, err), l.close())
}

// untilAllStop returns a context that the end of this process' own does not end: that is
// only said to the others, and all stop after the same step. But who waits for a process
// that has died gives up.
func (l *loop) untilAllStop() (run context.Context, over context.CancelFunc) {
	l.ranks[0].interrupted = func() bool { return l.signal.Err() != nil }
	run, over = context.WithCancel(context.WithoutCancel(l.signal))
	context.AfterFunc(l.signal, func() { l.leaveWord(run) })
	return run, over
}

// leaveWord writes down for whom this process waits, until the run is over. A death on another
// machine cannot be seen, and a launcher that ends the job because of one leaves little time.
func (l *loop) leaveWord(run context.Context) {
	const betweenLooks = 50 * time.Millisecond
	cause, said := context.Cause(l.signal), ""
	for ; run.Err() == nil; time.Sleep(betweenLooks) {
		if err := l.world.dead(); err != nil {
			l.world.abort(fmt.Errorf("%w: %w", cause, err))
			return
		}
		if waits := l.world.waiting(); waits != "" && waits != said {
			_ = l.world.record(fmt.Errorf("%w: %s", cause, waits)) // there is nobody to tell
			said = waits
		}
	}
}

// ownHooks are what Run itself does. What watches steps stands before what reports them.
func (l *loop) ownHooks() []Hook {
	var own []Hook
	if l.config.Profiling.EnableProfiling {
		own = append(own, l.profilerHook())
	}
	own = append(own,
		Hook{Priority: SavePriority, AfterStep: l.saveIfDue},
		Hook{Priority: ValidatePriority, AfterStep: l.judgeIfDue})
	if l.world.leads() {
		own = append(own, l.reporters()...)
	}
	return own
}

// reporters are the hooks of the process that reports.
func (l *loop) reporters() []Hook {
	var own []Hook
	if l.progress != nil {
		own = append(own, l.progress.hook())
	}
	if l.config.Metrics.EnableTensorboard {
		own = append(own, tensorboardHook(l.config))
	}
	own = append(own, Hook{Priority: ReportPriority, AfterStep: l.reportIfDue, Report: l.write, Validated: l.writeValidation})
	if l.config.Metrics.HTTP != "" {
		own = append(own, liveHook(l.config, l.print))
	}
	return own
}

// loop is what one call of Run keeps.
type loop struct {
	*Trainer
	signal   context.Context // whose end asks this process to stop
	hooks    hooks
	progress *progress // nil if lines do not go to a terminal
	metrics  *MetricsWriter
	usage    usage
	memory   int64   // this process may use, in bytes; 0 if unknown
	peak     float64 // FLOP/s of float32; NaN if it says nothing about the trained dtype
	peakOf   string  // what was measured

	since  since
	judged int  // step at which held-out data was measured last
	waited bool // a save had to wait for the one before
	agreed bool // all processes stop now
	lock   *folderlock.Lock
}

// since is what was done since the last line.
type since struct {
	time          time.Time // of that line
	tokens, steps int
	traffic       Traffic       // of the last step
	exposed       time.Duration // of all steps
	exposedCopies time.Duration // of what is offloaded
}

// prepare has the first process open what the run writes to and tell what it is going to do.
func (l *loop) prepare(ctx context.Context) error {
	return l.stateFolder().writers.lead(func() error { return l.prepareFolder(ctx) })
}

func (l *loop) prepareFolder(ctx context.Context) error {
	folder := l.config.Job.DumpFolder
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fmt.Errorf("train: job.dump_folder: %w; name a folder that can be written", err)
	}
	err := l.lockFolder()
	if err == nil {
		err = l.open(ctx)
	}
	if err != nil {
		_ = l.close()
	}
	return err
}

// open needs the lock on the dump folder.
func (l *loop) open(ctx context.Context) error {
	folder := l.config.Job.DumpFolder
	text, err := l.config.TOML()
	if err != nil {
		return fmt.Errorf("train: config: %w", err)
	}
	if err := os.RemoveAll(l.config.FlightPath()); err != nil {
		return fmt.Errorf("train: flight records of an earlier run: %w; make job.dump_folder writable", err)
	}
	if err := atomicfile.WriteFile(filepath.Join(folder, ConfigFile), text); err != nil {
		return fmt.Errorf("train: config: %w; make job.dump_folder writable", err)
	}
	l.metrics, err = OpenMetrics(filepath.Join(folder, MetricsFile), l.step)
	if err != nil {
		return err
	}
	if err := l.measurePeak(); err != nil {
		return err
	}
	return l.announce(ctx)
}

// measurePeak leaves NaN for another dtype than the measured one: MFU is then N/A.
func (l *loop) measurePeak() (err error) {
	l.peak = math.NaN()
	if l.config.Training.DType == "float32" {
		l.peak, l.peakOf, err = peakFLOPs(l.device)
		l.peak *= float64(l.layout.ranks() / len(l.ranks)) // of all processes
	}
	return err
}

func (l *loop) close() error {
	var errs []error
	if l.metrics != nil {
		errs = append(errs, l.metrics.Close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Release())
	}
	return errors.Join(errs...)
}

func (l *loop) run(ctx context.Context) error {
	if err := l.hooks.start(ctx, l.Trainer); err != nil {
		return err
	}
	l.judged = -1
	l.resetClock()
	if err := l.steps(ctx); err != nil && !errors.Is(err, ErrEnough) {
		return err
	}
	if err := l.save(ctx); err != nil {
		return err
	}
	if l.judged != l.step {
		return l.orStop(ctx, l.judge(ctx))
	}
	return nil
}

// steps makes what is left of training.steps.
func (l *loop) steps(ctx context.Context) error {
	// A step that has begun is finished: half of one is of no use to anybody.
	whole := context.WithoutCancel(ctx)
	for l.step < l.config.Training.Steps {
		if ctx.Err() != nil || l.agreed {
			return l.stop(ctx)
		}
		if err := l.hooks.beforeStep(ctx, l.Trainer); err != nil {
			return l.orStop(ctx, err)
		}
		before := l.Traffic()
		r, err := l.Step(whole)
		if err != nil {
			return err
		}
		l.agreed = l.ranks[0].stopping
		l.since.add(r, l.Traffic().Minus(before))
		if err := l.hooks.afterStep(ctx, l.Trainer, r); err != nil {
			return l.orStop(ctx, err)
		}
	}
	return nil
}

func (s *since) add(r StepResult, t Traffic) {
	s.tokens += r.Tokens
	s.steps++
	s.traffic = t
	s.exposed += t.Machines.Exposed
	s.exposedCopies += t.Machines.ExposedCopies
}

func (l *loop) reportIfDue(ctx context.Context, _ *Trainer, r StepResult) error {
	if l.step == 1 || l.step%l.config.Metrics.LogFreq == 0 || l.step == l.config.Training.Steps {
		return l.report(ctx, r)
	}
	return nil
}

func (l *loop) judgeIfDue(ctx context.Context, _ *Trainer, _ StepResult) error {
	if v := l.config.Validation; v.Enable && l.step%v.Freq == 0 {
		return l.judge(ctx)
	}
	return nil
}

// report tells the hooks what came out since the last line.
func (l *loop) report(ctx context.Context, r StepResult) error {
	seconds := time.Since(l.since.time).Seconds()
	tps := float64(l.since.tokens) / seconds
	flops := tps * l.model.FLOPsPerToken(l.config.Training.SeqLen)
	hostSyncs := l.since.traffic.hostSyncs()
	m := Metrics{
		Step: l.step, Loss: Float(r.Loss), GradNorm: Float(r.GradNorm),
		MemoryBytes: l.memoryBytes(),
		TPS:         Float(tps), TFLOPS: Float(flops / 1e12), MFU: Float(100 * flops / l.peak),
		ExecutedTFLOPS: Float(float64(l.since.steps*l.layout.ranks()) * l.usage.executedFLOPs / seconds / 1e12),
		SavedBytes:     l.usage.savedBytes, RecomputedFLOPs: int64(l.usage.recomputedFLOPs),
		HostSyncs: sum(hostSyncs), HostSyncsByPass: hostSyncs,
		Collectives: l.since.traffic.collectives(), ExposedSeconds: Float(l.since.exposed.Seconds()),
		OffloadedBytes: l.since.traffic.Machines.CopiedOut, ReloadedBytes: l.since.traffic.Machines.CopiedBack, OffloadExposedSeconds: Float(l.since.exposedCopies.Seconds()),
		Seconds: Float(seconds), ExpertLoad: expertLoad(moe.Loads(l.Store())),
	}
	if l.memory > 0 {
		m.MemoryPct = Float(100 * float64(m.MemoryBytes) / float64(l.memory))
	}
	err := l.hooks.report(ctx, l.Trainer, m)
	l.resetClock()
	return err
}

// write puts a report on the console and into metrics.jsonl.
func (l *loop) write(_ context.Context, _ *Trainer, m Metrics) error {
	l.print("%s", m)
	return l.metrics.Write(m)
}

func (l *loop) writeValidation(_ context.Context, _ *Trainer, e Evaluation) error {
	return l.metrics.WriteValidation(ValidationMetrics{Step: l.step, Loss: Float(e.Loss), Predictions: e.Predictions})
}

func expertLoad(loads []moe.Load) []ExpertLoad {
	var list []ExpertLoad
	for _, l := range loads {
		list = append(list, ExpertLoad{Layer: l.Layer, MaxViolation: Float(l.MaxViolation()), Entropy: Float(l.Entropy())})
	}
	return list
}

// memoryBytes is the high-water mark of all ranks of this process since the last
// report. A static program needs the same in every run.
func (l *loop) memoryBytes() int64 {
	var sum int64
	for _, r := range l.ranks {
		peak := r.peak
		for _, p := range r.programs.all() {
			if !r.programs.trains(p) || r.peak == 0 {
				peak = max(peak, p.Bound().Peak)
			}
		}
		sum += r.store.Bytes() + peak + l.ringBytes()
		r.peak = 0
	}
	return sum + l.stagingBytes()
}

func (l *loop) resetClock() { l.since = since{time: time.Now()} }

// offClock runs something that is not training, and keeps its time out of the
// rates.
func (l *loop) offClock(f func() error) error {
	start := time.Now()
	err := f()
	l.since.time = l.since.time.Add(time.Since(start))
	return err
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
		if err := l.hooks.validated(ctx, l.Trainer, e); err != nil {
			return err
		}
		if l.step < l.config.Training.Steps || !l.world.leads() || l.options.Loss != nil || l.data.own != nil {
			return nil // the entropy of text says nothing about another loss or dataset
		}
		return l.verdict(ctx, e)
	})
}

// stop is the orderly end of a run that was told to end.
func (l *loop) stop(ctx context.Context) error {
	if !l.config.State.Enable {
		return fmt.Errorf("train: stopped at step %d: %w; nothing was saved, since state.enable is false", l.step, l.cause())
	}
	if err := l.save(ctx); err != nil {
		return err
	}
	return fmt.Errorf("train: %w at step %d of %d (%w); the same command goes on from there", ErrStopped, l.step, l.config.Training.Steps, l.cause())
}

// cause is why the run stops.
func (l *loop) cause() error {
	if err := context.Cause(l.signal); err != nil {
		return err
	}
	return errors.New("another process of the job was told to")
}

// orStop turns the error of what ctx interrupted into an orderly end.
func (l *loop) orStop(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return l.stop(ctx)
	}
	return err
}

func (l *loop) print(format string, args ...any) { fmt.Fprintf(l.options.Log, format+"\n", args...) }
