package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/internal/chrometrace"
)

// span is a stretch of a trace, in seconds.
type span struct{ begin, end float64 }

func (s span) overlap(t span) float64 { return max(0, min(s.end, t.end)-max(s.begin, t.begin)) }

// rankTrace is what the trace of a step says of one rank.
type rankTrace struct {
	steps, waits []span            // of the compute lane: all of them, and those that wait
	computing    float64           // seconds
	lanes        map[string][]span // collectives by the name of their lane, in order
}

// readTrace reads the slices of every rank.
func readTrace(path string) ([]*rankTrace, error) {
	trace, err := chrometrace.ReadFile(path)
	if err != nil {
		return nil, err
	}
	processes, threads := trace.Names()
	byProcess := map[int]*rankTrace{}
	var ranks []*rankTrace
	for _, p := range slices.Sorted(maps.Keys(processes)) {
		if strings.HasPrefix(processes[p], "rank ") {
			byProcess[p] = &rankTrace{lanes: map[string][]span{}}
			ranks = append(ranks, byProcess[p])
		}
	}
	for _, e := range trace.Events {
		if r := byProcess[e.Process]; r != nil && e.Phase == chrometrace.Complete && e.Category != "group" {
			r.add(e, threads[e.Thread])
		}
	}
	return ranks, nil
}

func (r *rankTrace) add(e chrometrace.Event, lane string) {
	s := span{float64(e.Time) / 1e9, float64(e.Time+*e.Duration) / 1e9}
	switch {
	case lane != "compute":
		r.lanes[lane] = append(r.lanes[lane], s)
		return
	case e.Category == "wait":
		r.waits = append(r.waits, s)
	case e.Args["flops"] != nil:
		r.computing += s.end - s.begin
	}
	r.steps = append(r.steps, s)
}

// row adds up the ranks. The collectives of a lane have one order on all of them: data begins
// to move when the last rank has come.
func row(ranks []*rankTrace) (Row, error) {
	var r Row
	for lane, first := range ranks[0].lanes {
		for i := range first {
			met := 0.0
			for _, of := range ranks {
				if len(of.lanes[lane]) != len(first) {
					return r, fmt.Errorf("%q: ranks have %d and %d collectives", lane, len(of.lanes[lane]), len(first))
				}
				met = max(met, of.lanes[lane][i].begin)
			}
			for _, of := range ranks {
				of.lanes[lane][i].begin = met
			}
		}
	}
	for _, of := range ranks {
		r.ComputeSeconds += of.computing
		waited, exposed := 0.0, 0.0
		for _, w := range of.waits {
			moving := 0.0
			for _, lane := range of.lanes {
				for _, s := range lane {
					moving += w.overlap(s)
				}
			}
			waited += w.end - w.begin
			exposed += min(moving, w.end-w.begin)
		}
		r.ExposedSeconds += exposed
		r.WaitedSeconds += waited - exposed
		for _, lane := range of.lanes {
			for _, s := range lane {
				r.CommunicationSeconds += s.end - s.begin
			}
		}
		for _, s := range of.steps {
			r.StepSeconds = max(r.StepSeconds, s.end)
		}
	}
	r.ExposedPct = 100 * r.ExposedSeconds / r.CommunicationSeconds
	return r, nil
}
