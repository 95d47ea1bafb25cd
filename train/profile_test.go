package train

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/chrometrace"
	"github.com/lethe-go/lethe/model/deepseekv3"
)

// profiledConfig trains a small mixture of experts on two ranks, in two microbatches.
func profiledConfig(t *testing.T) (Config, Model) {
	c := DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 32, 2, 4
	c.Training.Steps, c.Training.Threads = 3, 2
	c.Parallelism.ExpertParallelDegree = 2
	m, err := deepseekv3.Flavor("quickstart")
	if err != nil {
		t.Fatal(err)
	}
	m.Layers, m.Dim = 2, 32
	return c, DeepSeekV3("tiny", m)
}

func runConfig(t *testing.T, c Config, o Options) *Trainer {
	t.Helper()
	r, err := New(context.Background(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if err := r.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r
}

// Tracing changes no bit, traces the steps it is told to, and the traces are sound.
func TestProfile(t *testing.T) {
	c, model := profiledConfig(t)
	runConfig(t, c, Options{Model: model})
	p := c
	p.Job.DumpFolder = t.TempDir()
	p.Profiling.EnableProfiling, p.Profiling.ProfileFreq = true, 2
	var log strings.Builder
	peaks := map[int]int64{}
	note := Hook{AfterStep: func(_ context.Context, r *Trainer, _ StepResult) error {
		for _, rank := range r.ranks {
			if r.step == 2 {
				peaks[rank.index] = stepPeak(rank)
			}
			rank.peak = 0
		}
		return nil
	}}
	r := runConfig(t, p, Options{Model: model, Log: &log, Hooks: []Hook{note}})
	if report, err := Compare(c.Job.DumpFolder, p.Job.DumpFolder); err != nil || !report.Equal() {
		t.Errorf("%v: %v", err, report)
	}
	files, err := filepath.Glob(filepath.Join(p.TracesPath(), "*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "step-000002.trace.json" || !strings.Contains(log.String(), files[0]) {
		t.Fatalf("%v: %v", err, files)
	}
	trace := readTrace(t, files[0])
	checkTrace(t, trace)
	checkLanes(t, trace)
	checkSteps(t, trace, r)
	checkCounters(t, trace, peaks)
}

func readTrace(t *testing.T, path string) chrometrace.Trace {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var trace chrometrace.Trace
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatal(err)
	}
	return trace
}

type threadID struct{ process, thread int }

// checkTrace checks the rules of the format: known phases, names for all processes and
// threads, slices that nest, flows that begin, pass and end.
func checkTrace(t *testing.T, trace chrometrace.Trace) {
	t.Helper()
	processes, threads := map[int]string{}, map[threadID]string{}
	for _, e := range trace.Events {
		switch e.Name {
		case "process_name":
			processes[e.Process] = e.Args["name"].(string)
		case "thread_name":
			threads[threadID{e.Process, e.Thread}] = e.Args["name"].(string)
		}
	}
	owners := map[int]int{}
	open := map[threadID][]chrometrace.Event{}
	flows := map[int]string{}
	for i, e := range trace.Events {
		id := threadID{e.Process, e.Thread}
		if processes[e.Process] == "" || threads[id] == "" || e.Name == "" || e.Time < 0 {
			t.Fatalf("event %d %+v is of no known process and thread, or has no name or time", i, e)
		}
		switch e.Phase {
		case chrometrace.Complete:
			if e.Duration == nil || *e.Duration < 0 {
				t.Fatalf("event %d %+v has no duration", i, e)
			}
		case chrometrace.FlowStart, chrometrace.FlowStep, chrometrace.FlowEnd:
			flows[e.ID] += string(e.Phase)
		case chrometrace.Counter, chrometrace.Metadata:
		default:
			t.Fatalf("event %d has the phase %q", i, e.Phase)
		}
	}
	for _, e := range sortedSlices(trace) {
		id := threadID{e.Process, e.Thread}
		if owner, ok := owners[e.Thread]; ok && owner != e.Process {
			t.Fatalf("thread %d is of two processes", e.Thread)
		}
		owners[e.Thread] = e.Process
		for n := len(open[id]); n > 0 && end(open[id][n-1]) <= e.Time && !(end(e) == e.Time && end(open[id][n-1]) == e.Time); n-- {
			open[id] = open[id][:n-1]
		}
		if n := len(open[id]); n > 0 && end(e) > end(open[id][n-1]) {
			t.Fatalf("%s: %s [%v, %v] and %s [%v, %v] overlap", threads[id], open[id][n-1].Name, open[id][n-1].Time, end(open[id][n-1]), e.Name, e.Time, end(e))
		}
		open[id] = append(open[id], e)
	}
	for id, events := range flows {
		if events != "stf" {
			t.Errorf("flow %d has the events %s", id, events)
		}
	}
	if len(flows) == 0 || trace.Unit != "ms" || trace.Other["worker_stretches_without_room"] != 0.0 {
		t.Errorf("%d flows, unit %q, %v", len(flows), trace.Unit, trace.Other)
	}
}

func end(e chrometrace.Event) chrometrace.Time { return e.Time + *e.Duration }

// sortedSlices puts slices in order of begin, outer before inner.
func sortedSlices(trace chrometrace.Trace) []chrometrace.Event {
	var list []chrometrace.Event
	for _, e := range trace.Events {
		if e.Phase == chrometrace.Complete {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b chrometrace.Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(*b.Duration, *a.Duration))
	})
	return list
}

// checkLanes checks that there is a lane for each worker and communicator.
func checkLanes(t *testing.T, trace chrometrace.Trace) {
	t.Helper()
	names := map[string]string{}
	count := map[string]int{}
	for _, e := range trace.Events {
		id := fmt.Sprint(e.Process, ".", e.Thread)
		switch {
		case e.Name == "thread_name":
			names[id] = e.Args["name"].(string)
		case e.Phase == chrometrace.Complete:
			count[id]++
		}
	}
	for id, name := range map[string]string{"1.1": "compute", "1.2": "collective expert", "1.3": "collective data",
		"2.4": "compute", "2.5": "collective expert", "2.6": "collective data", "3.7": "worker 0", "3.8": "worker 1"} {
		if names[id] != name || count[id] == 0 && name != "worker 1" {
			t.Errorf("thread %s is %q with %d slices, want %q", id, names[id], count[id], name)
		}
	}
}

// checkSteps checks that every step of every run has its slice, of its category.
func checkSteps(t *testing.T, trace chrometrace.Trace, r *Trainer) {
	t.Helper()
	for _, rank := range r.ranks {
		want, got := map[string]int{}, map[string]int{}
		p := rank.programs
		for _, q := range []*graph.Program{p.first, p.last, p.norm, p.update} {
			for _, s := range q.Steps {
				kind := category(s, q == p.norm || q == p.update)
				want[kind+" "+s.Node.Name]++
			}
		}
		for _, e := range trace.Events {
			if e.Phase != chrometrace.Complete || e.Process != rank.index+1 {
				continue
			}
			switch e.Category {
			case groupCategory, hostCategory, launchCategory:
			case waitCategory:
				got[e.Category+" "+e.Name]++
			default:
				got[e.Category+" "+e.Name]++
				if e.Args["kind"] == "" || e.Args["out"] == "" || e.Args["bytes"].(float64) < 0 || math.IsNaN(e.Args["flops"].(float64)) {
					t.Errorf("%s: %v", e.Name, e.Args)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("rank %d: slices\n%v\nwant\n%v", rank.index, got, want)
		}
		for _, kind := range []string{forwardCategory, rerunCategory, backwardCategory, optimizerCategory, waitCategory} {
			if !strings.Contains(fmt.Sprint(got), kind+" ") {
				t.Errorf("rank %d: nothing of category %s", rank.index, kind)
			}
		}
	}
}

// checkCounters checks that the peak of the counter is the predicted peak for the row
// counts of the run, which the instrument in turn equals.
func checkCounters(t *testing.T, trace chrometrace.Trace, peaks map[int]int64) {
	t.Helper()
	for rank, want := range peaks {
		var peak int64
		var last chrometrace.Event
		for _, e := range trace.Events {
			if e.Phase != chrometrace.Counter || e.Process != rank+1 {
				continue
			}
			saved, transient := int64(e.Args["saved"].(float64)), int64(e.Args["transient"].(float64))
			if saved < 0 || transient < 0 || e.Time < last.Time {
				t.Fatalf("%+v after %+v", e, last)
			}
			peak, last = max(peak, saved+transient), e
		}
		if last.Args["saved"] != 0.0 || last.Args["transient"] != 0.0 {
			t.Errorf("rank %d: %v is left at the end", rank, last.Args)
		}
		if peak != want || peak <= 0 {
			t.Errorf("rank %d: the counter's peak is %d, want %d", rank, peak, want)
		}
	}
}

// stepPeak is the most that was alive in the step just made, by Program.Memory.
func stepPeak(r *rank) int64 {
	peak := r.peak // of the microbatches, for their row counts
	for _, p := range []*graph.Program{r.programs.norm, r.programs.update} {
		peak = max(peak, p.Bound().Peak)
	}
	return peak
}

// A traced step allocates no more than another one, and a trace is not made of memory
// taken in the step.
func TestTracingAllocatesNothing(t *testing.T) {
	c, _ := profiledConfig(t)
	c.Parallelism.ExpertParallelDegree = 1
	c.Model.Name, c.Model.Flavor = "llama3", "debugmodel"
	c.State.Enable = false
	r, err := New(context.Background(), c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	record := newRankRecord(r.ranks[0], c.Training.Microbatches())
	activity := device.NewActivity(2, 1<<16)
	r.device.(device.Recorder).Record(activity)
	defer r.device.(device.Recorder).Record(nil)
	if n := testing.AllocsPerRun(3, func() {
		now := time.Now()
		activity.Restart(now)
		record.start(now)
		if err := r.ranks[0].accumulate(context.Background(), 2); err != nil {
			t.Fatal(err)
		}
		if err := r.ranks[0].update(context.Background(), 2, 0); err != nil {
			t.Fatal(err)
		}
		record.stop()
	}); n != 0 {
		t.Errorf("%v allocations in a traced step", n)
	}
	if list, lost := activity.Busy(0); len(list) == 0 || lost != 0 {
		t.Errorf("%d stretches of worker 0, %d lost", len(list), lost)
	}
}
