package checkpoint

import (
	"slices"

	"github.com/lethe-go/lethe/checkpoint/internal/remat"
	"github.com/lethe-go/lethe/graph"
)

// Knapsack is the rule of PyTorch's activation_memory_budget, for comparison
// (torch/_functorch/partitioners.py, choose_saved_values_set): ops that are dear to compute
// are not rerun, and a minimum cut finds the fewest bytes to save then. If those are more
// than a share of what they come to, a 0/1 knapsack decides which of the dear values
// stay, as if rerunning one cost no more than its own time; the others may be rerun, and
// the cut is made again.
func (p *Planner) Knapsack(share float64) (Planned, error) {
	dear := make([]bool, len(p.ops))
	for i, n := range p.ops {
		dear[i] = p.free[n.ID] && slices.Contains([]string{"matmul", "grouped_matmul", "attention"}, n.Kind)
	}
	rerun, err := p.fewestBytes(dear)
	if err != nil {
		return Planned{}, err
	}
	var items []int
	var most int64
	for i := range p.ops {
		if n := p.saves(i); dear[i] && !rerun[i] && n > 0 {
			items, most = append(items, i), most+n
		}
	}
	for _, i := range p.without(items, int64(share*float64(most))) {
		dear[i] = false
	}
	if rerun, err = p.fewestBytes(dear); err != nil {
		return Planned{}, err
	}
	return p.judge(rerun, nil)
}

// saves is what saving an op's values takes.
func (p *Planner) saves(i int) (bytes int64) {
	for _, v := range p.schedule.Ops[i].Out {
		if p.schedule.Values[v].Needed {
			bytes += p.schedule.Values[v].Size
		}
	}
	return bytes
}

// fewestBytes is the minimum cut: what is rerun if some ops must not be.
func (p *Planner) fewestBytes(dear []bool) ([]bool, error) {
	problem := &remat.Problem{Ops: slices.Clone(p.schedule.Ops), Values: slices.Clone(p.schedule.Values)}
	for i := range problem.Ops {
		problem.Ops[i].Cost = 1
		if dear[i] {
			problem.Ops[i].Fixed = remat.Once
		}
	}
	solver, err := remat.NewSolver(problem)
	if err != nil {
		return nil, err
	}
	plan, _ := solver.Smallest()
	return plan.Rerun, nil
}

// without are the items that the knapsack leaves out: by dynamic programming over the
// weight in thousandths of the capacity, the chosen ones take the longest to compute.
func (p *Planner) without(items []int, capacity int64) (out []int) {
	const parts = 1000
	if capacity == 0 {
		return items
	}
	best, takes := make([]int64, parts+1), make([][parts + 1]bool, len(items))
	weights := make([]int, len(items))
	for k, i := range items {
		weights[k] = int((p.saves(i)*parts + capacity - 1) / capacity)
		for w := parts; w >= weights[k]; w-- {
			if with := best[w-weights[k]] + p.costs[p.ops[i].ID]; with > best[w] {
				best[w], takes[k][w] = with, true
			}
		}
	}
	w := parts
	for k := len(items) - 1; k >= 0; k-- {
		if takes[k][w] {
			w -= weights[k]
		} else {
			out = append(out, items[k])
		}
	}
	return out
}

// operations are a cost model that counts floating-point operations alone.
type operations struct{}

func (operations) Nanoseconds(n *graph.Node) int64 { return int64(n.Cost.ExecutedFLOPs) }

// Operations is that model.
func Operations() Costs { return operations{} }
