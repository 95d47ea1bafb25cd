package train

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/internal/chrometrace"
)

// profiler traces one step out of profile_freq and writes what it saw. A traced step
// trains the same bits; other steps know nothing of it.
type profiler struct {
	config   ProfilingConfig
	folder   string
	ranks    []*rankRecord
	recorder device.Recorder // nil if the device cannot record
	activity *device.Activity
	on       bool
}

// hook is the profiler's place in a run.
func (l *loop) profilerHook() Hook {
	p := &profiler{config: l.config.Profiling, folder: l.config.TracesPath()}
	return Hook{
		Priority: ReportPriority,
		Start: func(context.Context, *Trainer) error {
			p.prepare(l.Trainer)
			return nil
		},
		BeforeStep: func(_ context.Context, t *Trainer) error {
			if (t.Steps()+1)%p.config.ProfileFreq == 0 {
				p.start()
			}
			return nil
		},
		AfterStep: func(_ context.Context, t *Trainer, _ StepResult) error {
			if !p.on {
				return nil
			}
			p.stop()
			return l.offClock(func() error {
				path, err := p.write(t)
				if err == nil {
					l.print("profile: step %d traced in %s", t.Steps(), path)
				}
				return err
			})
		},
		Finish: func(context.Context, *Trainer, error) error {
			p.stop()
			return nil
		},
	}
}

// workerRoom is how many stretches of each worker a trace holds for every step of a
// schedule: a kernel takes one or two, a large product some more.
const workerRoom = 16

// prepare allocates what a trace needs, so that tracing takes no memory of the step's.
func (p *profiler) prepare(t *Trainer) {
	steps := 0
	for _, r := range t.ranks {
		record := newRankRecord(r, t.config.Training.Microbatches())
		p.ranks = append(p.ranks, record)
		for _, m := range record.tracers {
			steps += len(m.runs) * (len(m.machine.Program().Steps) + 2)
		}
	}
	if r, ok := t.device.(device.Recorder); ok {
		p.recorder, p.activity = r, device.NewActivity(r.Workers(), workerRoom*steps)
	}
}

func (p *profiler) start() {
	now := time.Now()
	for _, r := range p.ranks {
		r.start(now)
	}
	if p.recorder != nil {
		p.activity.Restart(now)
		p.recorder.Record(p.activity)
	}
	p.on = true
}

func (p *profiler) stop() {
	if !p.on {
		return
	}
	p.on = false
	for _, r := range p.ranks {
		r.stop()
	}
	if p.recorder != nil {
		p.recorder.Record(nil)
	}
}

// write makes the file of the step that was traced.
func (p *profiler) write(t *Trainer) (path string, err error) {
	if err := os.MkdirAll(p.folder, 0o777); err != nil {
		return "", fmt.Errorf("train: profiling.save_traces_folder: %w; name a folder that can be written", err)
	}
	trace := p.trace(t)
	name := fmt.Sprintf("step-%06d.trace.json", t.Steps())
	if t.world.several() {
		name = fmt.Sprintf("step-%06d.rank-%d.trace.json", t.Steps(), t.ranks[0].index)
	}
	path = filepath.Join(p.folder, name)
	err = atomicfile.Write(atomicfile.OS, path, func(w io.Writer) error { return trace.Write(w) })
	if err != nil {
		return "", fmt.Errorf("train: profile: %w", err)
	}
	return path, nil
}

func (p *profiler) trace(t *Trainer) chrometrace.Trace {
	b := newTraceBuilder()
	for _, r := range p.ranks {
		b.rank(r)
	}
	lost := 0
	if p.recorder != nil {
		lost = b.workers(t.device.Name(), p.activity)
	}
	return chrometrace.Trace{Events: b.events, Unit: "ms", Other: map[string]any{
		"step": t.Steps(), "model": t.model.Name(), "dtype": t.config.Training.DType, "device": t.device.Name(), "kernels": t.device.Level(),
		"workers": t.device.Workers(), "activation_checkpoint.mode": t.config.ActivationCheckpoint.Mode,
		"persistent_bytes_of_a_rank": t.Store().Bytes(), "worker_stretches_without_room": lost,
	}}
}
