package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/graph"
)

// InfeasibleError says that no plan was found within a budget, and what holds the memory of
// the smallest.
type InfeasibleError struct {
	// BudgetBytes is the budget, SmallestBytes the least peak that was found.
	BudgetBytes, SmallestBytes int64
	// At names the step at which that much lives.
	At string
	// Largest are what takes most there, the largest first.
	Largest []Holder
}

// Holder is a value, or the workspace of an op, that takes memory.
type Holder struct {
	Node  string // that made it, by its fully qualified name
	Bytes int64
}

func (e *InfeasibleError) Error() string {
	var largest []string
	for _, h := range e.Largest {
		largest = append(largest, fmt.Sprintf("%s (%d bytes)", h.Node, h.Bytes))
	}
	return fmt.Sprintf("checkpoint: no plan with a peak within %d bytes was found: the smallest peak is %d bytes, at %s, where the largest are %s; raise the budget, or make the batch or the sequences smaller",
		e.BudgetBytes, e.SmallestBytes, e.At, strings.Join(largest, ", "))
}

// infeasible looks at what holds the memory of the smallest plan.
func (p *Planner) infeasible(budget int64, smallest Planned) error {
	program, err := graph.Schedule(p.graph, smallest.Plan)
	if err != nil {
		return err
	}
	at := program.PeakStep(p.counts)
	e := &InfeasibleError{BudgetBytes: budget, SmallestBytes: smallest.PeakBytes, At: program.Moment(at)}
	for _, s := range program.Storages {
		if s.Begin <= at && at <= s.End {
			e.Largest = append(e.Largest, Holder{s.Edge.Node.Name, s.BytesAt(p.counts)})
		}
	}
	slices.SortStableFunc(e.Largest, func(a, b Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	const most = 3
	e.Largest = e.Largest[:min(most, len(e.Largest))]
	return e
}
