package train

import (
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/graph"
)

// simulation is what becomes of a rank whose steps take the times of a model, in seconds. All
// ranks being alike, each arrives at a collective when the others do, and leaves when the
// last does.
type simulation struct {
	now           float64
	compute       float64 // of the compute lane
	communication float64 // of all other lanes
	exposed       float64 // the compute lane waited for
	traffic       Traffic
	lanes         map[graph.Lane]float64 // until when each is busy
	arrival       map[*graph.Step]float64
}

// simulate follows one run of a Program. As on a Machine, an asynchronous step begins when
// the one before it on its lane is over, and a Wait ends when what it waits for does. Lanes
// do not slow each other down.
func (k Cluster) simulate(p *graph.Program, counts graph.Counts) simulation {
	t := simulation{lanes: map[graph.Lane]float64{}, arrival: map[*graph.Step]float64{}}
	for _, s := range p.Steps {
		if s.Kind == graph.Wait {
			if late := t.arrival[s.Awaits()] - t.now; late > 0 {
				t.exposed += late
				t.now += late
			}
			continue
		}
		seconds, collective := k.seconds(s, counts, &t.traffic)
		switch {
		case s.Lane != graph.Compute:
			t.communication += seconds
			t.arrival[s] = max(t.now, t.lanes[s.Lane]) + seconds
			t.lanes[s.Lane] = t.arrival[s]
		case collective:
			t.communication += seconds
			t.exposed += seconds
			t.now += seconds
		default:
			t.compute += seconds
			t.now += seconds
		}
	}
	return t
}

// seconds that a step takes on its lane: for a collective those of the link, else the longer
// of computing and of moving operands. What a collective moves is added to the traffic.
func (k Cluster) seconds(s *graph.Step, counts graph.Counts, to *Traffic) (seconds float64, isCollective bool) {
	if t, ok := collective.TransferOf(s.Node.Op, s.InputSpecs(counts)); ok && s.Computes() {
		to.Collectives.Add(s.Pass(), t.Kind, flight.Count{Calls: 1, Sent: t.Sent, Received: t.Received})
		return k.Link.Transfer(t.Kind, t.Most.Sent, t.Most.Received).Seconds(), true
	}
	cost := s.Cost(counts)
	if k.FLOPs > 0 {
		seconds = cost.ExecutedFLOPs / k.FLOPs
	}
	if k.MemoryBandwidth > 0 {
		seconds = max(seconds, float64(cost.BytesRead+cost.BytesWritten)/k.MemoryBandwidth)
	}
	return seconds, false
}

// add appends n runs that are alike.
func (t *simulation) add(n int, run simulation) {
	for range n {
		t.now += run.now
		t.compute += run.compute
		t.communication += run.communication
		t.exposed += run.exposed
		t.traffic.Collectives = t.traffic.Collectives.Plus(run.traffic.Collectives)
	}
}
