package train

import (
	"time"

	"github.com/lethe-go/lethe/graph"
)

// rankRecord is when everything happened on one rank in a traced step. It is as large
// as it needs to be before the step begins.
type rankRecord struct {
	rank    *rank
	tracers []*machineTracer
}

func newRankRecord(r *rank, microbatches int) *rankRecord {
	record := &rankRecord{rank: r}
	m := &r.machines
	for _, x := range []struct {
		name      string
		machine   *graph.Machine
		optimizer bool
	}{
		{"forward and backward", m.first.Machine, false}, {"forward and backward", machineOf(m.more), false},
		{"forward and backward", machineOf(m.last), false},
		{"gradient norm", m.norm, true}, {"update", m.update, true},
	} {
		if x.machine == nil {
			continue
		}
		t := &machineTracer{machine: x.machine, dynamic: len(x.machine.Counts()) > 0}
		for range r.programs.stepCount(x.machine.Program(), microbatches) {
			t.runs = append(t.runs, newRunRecord(x.machine.Program(), x.name, x.optimizer))
		}
		record.tracers = append(record.tracers, t)
	}
	return record
}

// start makes the rank's machines tell of everything from now on.
func (r *rankRecord) start(at time.Time) {
	for _, t := range r.tracers {
		t.started, t.next, t.run = at, 0, nil
		t.machine.Trace(t)
	}
}

func (r *rankRecord) stop() {
	for _, t := range r.tracers {
		t.machine.Trace(nil)
	}
}

// runRecord is when the steps of one run of a Program began and ended, counted from the
// start of the record.
type runRecord struct {
	program   *graph.Program
	name      string
	optimizer bool
	counts    graph.Counts // live rows; nil if all are known before

	// begins are indexed by step, from the feeding of inputs (0) to the reading of
	// outputs. A step ends where the next begins.
	begins []time.Duration
	end    time.Duration
	// lanes are those of asynchronous steps on their lane.
	lanes []interval
}

type interval struct{ begin, end time.Duration }

func newRunRecord(p *graph.Program, name string, optimizer bool) *runRecord {
	return &runRecord{program: p, name: name, optimizer: optimizer,
		begins: make([]time.Duration, len(p.Steps)+2), lanes: make([]interval, len(p.Steps)+2)}
}

// stretch is when a step, 0 and the one behind the last included, ran.
func (r *runRecord) stretch(index int) interval {
	if index+1 < len(r.begins) {
		return interval{r.begins[index], r.begins[index+1]}
	}
	return interval{r.begins[index], r.end}
}

// machineTracer implements graph.Tracer: it fills the records of a machine's runs.
type machineTracer struct {
	machine *graph.Machine
	dynamic bool // has row counts
	started time.Time
	runs    []*runRecord
	next    int
	run     *runRecord // the one that is on
}

func (t *machineTracer) now() time.Duration { return time.Since(t.started) }

func (t *machineTracer) Begin(index int, _ *graph.Step) {
	if index == 0 {
		t.run = t.runs[t.next]
		t.next++
	}
	t.run.begins[index] = t.now()
}

func (t *machineTracer) End(error) {
	t.run.end = t.now()
	if t.dynamic {
		t.run.counts = t.machine.Counts()
	}
}

func (t *machineTracer) Waited(*graph.Step) {}

func (t *machineTracer) Started(s *graph.Step)  { t.run.lanes[s.Index].begin = t.now() }
func (t *machineTracer) Finished(s *graph.Step) { t.run.lanes[s.Index].end = t.now() }
