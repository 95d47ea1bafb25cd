package train

import (
	"fmt"
	"strings"
	"time"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/chrometrace"
)

// Categories of slices. Those of steps do not overlap on a lane, so that their times add
// up; a group is around steps, which its name tells.
const (
	groupCategory     = "group"
	forwardCategory   = "forward"
	rerunCategory     = "rerun"
	backwardCategory  = "backward"
	optimizerCategory = "optimizer"
	waitCategory      = "wait"
	launchCategory    = "launch" // of an asynchronous step, on the compute lane
	hostCategory      = "host"   // feeding inputs and reading outputs
)

// colors are names that chrome://tracing knows. Perfetto has its own.
var colors = map[string]string{
	forwardCategory: "good", rerunCategory: "bad", backwardCategory: "rail_response", optimizerCategory: "rail_animation",
	waitCategory: "grey", launchCategory: "grey", hostCategory: "generic_work",
}

func category(s *graph.Step, optimizer bool) string {
	switch {
	case s.Kind == graph.Wait:
		return waitCategory
	case optimizer:
		return optimizerCategory
	case s.Kind == graph.Recompute:
		return rerunCategory
	case s.Backward():
		return backwardCategory
	}
	return forwardCategory
}

// traceBuilder makes the events of a trace.
type traceBuilder struct {
	events []chrometrace.Event
	// The processes, threads and flows so far; what is added goes to the last process.
	processes, threads, flows int
	lanes                     map[graph.Lane]int // threads of the rank that is being added

	categories map[*graph.Step]string
}

func newTraceBuilder() *traceBuilder { return &traceBuilder{categories: map[*graph.Step]string{}} }

func (b *traceBuilder) add(e ...chrometrace.Event) { b.events = append(b.events, e...) }

// group adds a slice around others.
func (b *traceBuilder) group(name, color string, when interval) {
	e := chrometrace.Slice(b.processes, b.lanes[graph.Compute], name, groupCategory, when.begin, when.end)
	e.Color = colors[color]
	b.add(e)
}

func (b *traceBuilder) slice(thread int, name, category string, when interval) {
	e := chrometrace.Slice(b.processes, thread, name, category, when.begin, when.end)
	e.Color = colors[category]
	b.add(e)
}

// process begins a process; thread begins one of its threads and returns its number.
func (b *traceBuilder) process(name string) {
	b.processes++
	b.add(chrometrace.ProcessName(b.processes, b.threads+1, name)...)
}

func (b *traceBuilder) thread(name string) int {
	b.threads++
	b.add(chrometrace.ThreadName(b.processes, b.threads, name)...)
	return b.threads
}

// rank adds a process with a thread for each lane.
func (b *traceBuilder) rank(r *rankRecord) {
	b.process(fmt.Sprintf("rank %d", r.rank.index))
	b.lanes = map[graph.Lane]int{graph.Compute: b.thread(string(graph.Compute))}
	for _, t := range r.tracers {
		for _, s := range t.machine.Program().Steps {
			if _, ok := b.lanes[s.Lane]; !ok {
				b.lanes[s.Lane] = b.thread(string(s.Lane))
			}
		}
	}
	microbatch := 0
	for _, t := range r.tracers {
		for _, run := range t.runs {
			name := run.name
			if !run.optimizer {
				name = fmt.Sprintf("microbatch %d: %s", microbatch, name)
				microbatch++
			}
			b.run(name, run)
		}
	}
}

// run adds the slices of a run: the run itself, the phases in it, stretches of reruns
// in those, and steps.
func (b *traceBuilder) run(name string, r *runRecord) {
	steps := r.program.Steps
	last := len(steps) + 1
	b.group(name, hostCategory, interval{r.begins[0], r.end})
	for from := 0; from < len(steps); {
		to := from + 1
		for to < len(steps) && phase(steps, to, r.optimizer) == phase(steps, from, r.optimizer) {
			to++
		}
		b.phase(r, from, to)
		from = to
	}
	b.slice(b.lanes[graph.Compute], "feed inputs", hostCategory, r.stretch(0))
	b.slice(b.lanes[graph.Compute], "read outputs", hostCategory, r.stretch(last))
	b.memory(r)
}

// phase is forward, backward or optimizer. A wait is of the phase it stands in.
func phase(steps []*graph.Step, i int, optimizer bool) string {
	if optimizer {
		return optimizerCategory
	}
	for ; i < len(steps)-1 && steps[i].Kind == graph.Wait; i++ {
	}
	if len(steps) > 0 && steps[i].Backward() {
		return backwardCategory
	}
	return forwardCategory
}

// phase adds the steps [from, to).
func (b *traceBuilder) phase(r *runRecord, from, to int) {
	steps := r.program.Steps
	name := phase(steps, from, r.optimizer)
	if !r.optimizer {
		b.group(name, name, interval{r.begins[from+1], r.stretch(to).end})
	}
	for i := from; i < to; i++ {
		if steps[i].Kind == graph.Recompute && (i == from || steps[i-1].Kind != graph.Recompute) {
			end := i
			for end+1 < to && steps[end+1].Kind == graph.Recompute {
				end++
			}
			b.group("rerun", rerunCategory, interval{r.begins[i+1], r.stretch(end + 1).end})
		}
		b.step(r, steps[i])
	}
}

// step adds a step, and what it does on another lane.
func (b *traceBuilder) step(r *runRecord, s *graph.Step) {
	when := r.stretch(s.Index)
	kind := category(s, r.optimizer)
	b.categories[s] = kind
	name := sliceName(s)
	e := chrometrace.Slice(b.processes, b.lanes[graph.Compute], name, kind, when.begin, when.end)
	switch {
	case s.Lane == graph.Compute:
		e.Color, e.Args = colors[kind], stepArgs(s, r.counts, when)
		b.add(e)
	default:
		e.Category, e.Color = launchCategory, colors[launchCategory]
		b.add(e)
		on := r.lanes[s.Index]
		e = chrometrace.Slice(b.processes, b.lanes[s.Lane], name, kind, on.begin, on.end)
		e.Color, e.Args = colors[kind], stepArgs(s, r.counts, on)
		b.add(e)
	}
	if launched := s.Awaits(); launched != nil {
		b.flow(r, launched, s)
	}
}

// sliceName is what a step is called: its node, and what is done with its result if the
// node itself does not run.
func sliceName(s *graph.Step) string {
	if s.Kind == graph.CopyOut || s.Kind == graph.CopyBack {
		return s.Kind.String() + " " + s.Node.Name
	}
	return s.Node.Name
}

// flow draws the arrow from where an asynchronous step is launched to where it runs and
// to the wait for it.
func (b *traceBuilder) flow(r *runRecord, s, wait *graph.Step) {
	b.flows++
	compute := b.lanes[graph.Compute]
	at := func(phase chrometrace.Phase, thread int, t time.Duration) chrometrace.Event {
		return chrometrace.Event{Name: s.Node.Kind, Category: "asynchronous", Phase: phase, Process: b.processes, Thread: thread, Time: chrometrace.Time(t), ID: b.flows}
	}
	end := at(chrometrace.FlowEnd, compute, max(r.stretch(wait.Index).begin, r.lanes[s.Index].begin))
	end.Binding = "e"
	b.add(at(chrometrace.FlowStart, compute, r.begins[s.Index]), at(chrometrace.FlowStep, b.lanes[s.Lane], r.lanes[s.Index].begin), end)
}

func stepArgs(s *graph.Step, counts graph.Counts, when interval) map[string]any {
	if s.Kind == graph.Wait {
		return map[string]any{"kind": s.Node.Kind, "source": s.Node.Source, "for": s.Awaits().Node.Name}
	}
	cost := s.Cost(counts)
	args := map[string]any{
		"kind": s.Node.Kind, "source": s.Node.Source, "in": joinSpecs(s.InputSpecs(counts)), "out": joinSpecs(s.OutputSpecs(counts)),
		"bytes": cost.BytesRead + cost.BytesWritten, "flops": cost.ExecutedFLOPs,
	}
	if ns := float64(when.end - when.begin); ns > 0 {
		args["gflops_per_second"] = cost.ExecutedFLOPs / ns
	}
	if s.Node.Region != nil {
		args["region"] = s.Node.Region.Scope
	}
	return args
}

func joinSpecs(specs []device.Spec) string {
	var b strings.Builder
	for i, s := range specs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.String())
	}
	return b.String()
}

// memory adds the bytes alive in the arena whenever they change, and none behind the run.
func (b *traceBuilder) memory(r *runRecord) {
	saved := r.program.LiveSavedBytes(r.counts)
	shown, showSaved := int64(-1), int64(-1)
	for i, live := range r.program.LiveBytes(r.counts) {
		if live != shown || saved[i] != showSaved {
			b.counter(r.begins[i], saved[i], live-saved[i])
			shown, showSaved = live, saved[i]
		}
	}
	b.counter(r.end, 0, 0)
}

func (b *traceBuilder) counter(at time.Duration, saved, transient int64) {
	b.add(chrometrace.Event{Name: "arena", Phase: chrometrace.Counter, Process: b.processes, Thread: b.lanes[graph.Compute], Time: chrometrace.Time(at),
		Args: map[string]any{"saved": saved, "transient": transient}})
}

// workers adds a process with a thread for each worker of the device.
func (b *traceBuilder) workers(name string, a *device.Activity) (lost int) {
	b.process(name + " workers")
	for w := range a.Workers() {
		thread := b.thread(fmt.Sprintf("worker %d", w))
		list, missing := a.Busy(w)
		lost += missing
		for _, busy := range list {
			name, kind := "copy", hostCategory
			if s, ok := busy.Label.(*graph.Step); ok {
				name, kind = sliceName(s), b.categories[s]
			}
			b.slice(thread, name, kind, interval{busy.Begin, busy.End})
		}
	}
	return lost
}
