// Package remat solves the rematerialization problem: which results of a forward
// pass to save for the backward pass, and which ops to run again, so that the
// reruns cost the least.
//
// A [Solver] gives, for any price of memory, a plan that no other plan beats, by
// one minimum cut (see cut.go); [Solver.Frontier] all plans that are best for some
// price; [Solver.Bound] what no plan within a number of saved bytes can undercut;
// [Solver.Exact] the best plan for it, by branch and bound. All arithmetic is on
// integers: equal problems have equal answers on every machine.
package remat

import (
	"fmt"
	"math/bits"
)

// Problem is a forward pass. An op follows the ops whose values it reads.
type Problem struct {
	Ops    []Op
	Values []Value
}

// Op is one op of the forward pass.
type Op struct {
	// Cost of a rerun, at least 0.
	Cost int64
	// In are the values it reads, without those that are there at any time, such
	// as parameters. Out are the values it makes.
	In, Out []int
	Fixed   Fixed
}

// Fixed is what may not be decided about an op.
type Fixed uint8

const (
	// Free ops are rerun or not, whatever is best.
	Free Fixed = iota
	// Once is never rerun: what is needed of its values is saved.
	Once
	// Again is rerun if any of its values is needed: none is saved.
	Again
)

// Value is a result of an op.
type Value struct {
	// Size in memory while it is saved, at least 0.
	Size     int64
	Producer int
	// Needed values are read by the backward pass.
	Needed bool
	// Optional values are not made by a run of which nobody reads them.
	Optional bool
}

// Plan is a set of reruns.
type Plan struct {
	Rerun []bool // by op
	// Saved is the sum of the sizes of what is needed, by the backward pass or a
	// rerun, and not made by a rerun. Cost is the sum of the costs of the reruns.
	Saved, Cost int64
}

// Evaluate makes a Plan of a set of reruns, which it takes. Reruns of which
// nobody needs a value are dropped.
func (p *Problem) Evaluate(rerun []bool) Plan {
	plan := Plan{Rerun: rerun}
	read := make([]bool, len(p.Values))
	for v := range p.Values {
		read[v] = p.Values[v].Needed
	}
	for i := len(p.Ops) - 1; i >= 0; i-- {
		op := &p.Ops[i]
		needed := false
		for _, v := range op.Out {
			needed = needed || read[v]
		}
		switch {
		case !needed:
			rerun[i] = false
		case rerun[i]:
			plan.Cost += op.Cost
			for _, v := range op.In {
				read[v] = true
			}
		default:
			for _, v := range op.Out {
				if read[v] {
					plan.Saved += p.Values[v].Size
				}
			}
		}
	}
	return plan
}

// totals are the sums of all costs and sizes. Their product, which is what a cut
// is worth at most, must stay below maxflow.Unlimited.
func (p *Problem) totals() (cost, size int64, err error) {
	for i := range p.Ops {
		cost += p.Ops[i].Cost
	}
	for i := range p.Values {
		size += p.Values[i].Size
	}
	hi, lo := bits.Mul64(uint64(cost)+1, uint64(size)+1)
	if hi != 0 || lo >= 1<<60 {
		return 0, 0, fmt.Errorf("remat: costs of %d and sizes of %d in all: their product must be below 2^60: use larger units", cost, size)
	}
	return cost, size, nil
}
