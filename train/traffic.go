package train

import (
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/graph"
)

// Traffic is what a rank has exchanged with others and what held it up, as it happened.
type Traffic struct {
	// Collectives of the Programs, and the direct ones of the Trainer.
	Collectives flight.Counts
	// Machines are the counters of all Programs together.
	Machines graph.Counters
}

// Minus is what has been added since.
func (t Traffic) Minus(earlier Traffic) Traffic {
	return Traffic{t.Collectives.Minus(earlier.Collectives), t.Machines.Minus(earlier.Machines)}
}

// Traffic of this process' first rank since the Trainer was made; that of a step is the
// difference between two calls around it.
func (t *Trainer) Traffic() Traffic {
	r := t.ranks[0]
	var sum Traffic
	if r.flight != nil {
		sum.Collectives = r.flight.Counts()
	}
	m := &r.machines
	for _, x := range [...]*graph.Machine{machineOf(m.first), machineOf(m.more), machineOf(m.last), m.norm, m.update, machineOf(m.evaluate)} {
		if x != nil {
			sum.Machines = sum.Machines.Plus(x.Counters())
		}
	}
	return sum
}

// ByPass has a T for each pass of a step: the forward pass, second runs of forward nodes,
// the backward pass, and what follows.
type ByPass[T any] struct {
	Forward  T `json:"forward"`
	Rerun    T `json:"rerun"`
	Backward T `json:"backward"`
	Update   T `json:"update"`
}

func byPass[T any](of func(graph.Pass) T) ByPass[T] {
	return ByPass[T]{of(graph.ForwardPass), of(graph.RerunPass), of(graph.BackwardPass), of(graph.UpdatePass)}
}

// collectives of the Programs by kind. Those that were not called are left out.
func (t Traffic) collectives() map[string]ByPass[flight.Count] {
	kinds := map[string]ByPass[flight.Count]{}
	for k := range collective.Kind(collective.Kinds) {
		counts := byPass(func(p graph.Pass) flight.Count { return t.Collectives[p][k] })
		if counts != (ByPass[flight.Count]{}) {
			kinds[k.String()] = counts
		}
	}
	return kinds
}

func (t Traffic) hostSyncs() ByPass[int64] {
	return byPass(func(p graph.Pass) int64 { return t.Machines.HostSyncs[p] })
}

// sum over the passes.
func sum(n ByPass[int64]) int64 { return n.Forward + n.Rerun + n.Backward + n.Update }
