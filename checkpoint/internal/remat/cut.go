package remat

import (
	"github.com/lethe-go/lethe/checkpoint/internal/maxflow"
)

// Solver finds plans of one Problem. It is not safe for concurrent use.
//
// The network has a node for each op and each value:
//
//	source → op         price × cost   cut: the op is rerun
//	op → value          size           cut: the value is saved
//	value → reading op  unlimited      a rerun needs what it reads
//	value → sink        unlimited      the backward pass needs the value
//
// A rerun op, and a value that is not saved but needed, lie on the side of the
// sink. A finite cut is worth the saved bytes plus price × cost of its plan, and
// every plan has such a cut: the minimum cut is the best plan for the price.
// Multi-output ops and shared ancestors are exact.
type Solver struct {
	problem    *Problem
	network    *maxflow.Network
	run, out   []int // arcs source → op, by op; op → value, by value
	side       []bool
	fixed      []Fixed // by op, for branch and bound
	cost, size int64   // of everything
}

// NewSolver builds the network. It refuses a problem whose numbers are too large.
func NewSolver(p *Problem) (*Solver, error) {
	cost, size, err := p.totals()
	if err != nil {
		return nil, err
	}
	n, m := len(p.Ops), len(p.Values)
	source, sink := n+m, n+m+1
	s := &Solver{problem: p, network: maxflow.New(n+m+2, source, sink), out: make([]int, m), side: make([]bool, n+m+2),
		fixed: make([]Fixed, n), cost: cost, size: size}
	for i := range p.Ops {
		s.fixed[i] = p.Ops[i].Fixed
		s.run = append(s.run, s.network.Arc(source, i, 0))
		for _, v := range p.Ops[i].Out {
			s.out[v] = s.network.Arc(i, n+v, 0)
		}
	}
	for i := range p.Ops {
		for _, v := range p.Ops[i].In {
			s.network.Arc(n+v, i, maxflow.Unlimited)
		}
	}
	for v := range p.Values {
		if p.Values[v].Needed {
			s.network.Arc(n+v, sink, maxflow.Unlimited)
		}
	}
	return s, nil
}

// Solve minimizes bytes × saved size + time × cost over all plans and returns two
// that reach it: few has the fewest reruns, and many the most. The value is that
// minimum. It reports false if no plan keeps what is fixed.
func (s *Solver) Solve(bytes, time int64) (few, many Plan, value int64, ok bool) {
	p := s.problem
	for i := range p.Ops {
		run := time * p.Ops[i].Cost
		if s.fixed[i] == Once {
			run = maxflow.Unlimited
		}
		s.network.SetCapacity(s.run[i], run)
		for _, v := range p.Ops[i].Out {
			save := bytes * p.Values[v].Size
			if s.fixed[i] == Again {
				save = maxflow.Unlimited
			}
			s.network.SetCapacity(s.out[v], save)
		}
	}
	value = s.network.Solve()
	if value >= maxflow.Unlimited {
		return Plan{}, Plan{}, value, false
	}
	s.network.SinkSide(s.side)
	few = p.Evaluate(append([]bool(nil), s.side[:len(p.Ops)]...))
	s.network.SourceSide(s.side)
	reruns := make([]bool, len(p.Ops))
	for i := range reruns {
		reruns[i] = !s.side[i]
	}
	return few, p.Evaluate(reruns), value, true
}

// Cheapest is the plan that costs the least, and of these one that saves the
// least.
func (s *Solver) Cheapest() (Plan, bool) {
	few, _, _, ok := s.Solve(1, s.size+1)
	return few, ok
}

// Smallest is the plan that saves the least, and of these one that costs the
// least.
func (s *Solver) Smallest() (Plan, bool) {
	_, many, _, ok := s.Solve(s.cost+1, 1)
	return many, ok
}
