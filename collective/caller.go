package collective

import "github.com/lethe-go/lethe/graph"

// Kind of a collective, a method of [Group].
type Kind uint8

// The kinds; their names are those of the graph ops.
const (
	KindAllToAll Kind = iota
	KindAllReduce
	KindAllGather
	KindReduceScatter
	KindBroadcast
	KindBarrier

	// Kinds is the number of kinds.
	Kinds = iota
)

func (k Kind) String() string {
	return [...]string{"all_to_all", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"}[k]
}

// Caller is on whose behalf a collective is called. Errors and flight records name it.
type Caller struct {
	// Node is the fully qualified name of the graph's node, "" for a direct call.
	Node string
	// Pass is NoPass for a direct call.
	Pass graph.Pass
	// Step is the optimizer step, counted from 1; Microbatch counts from 0.
	Step, Microbatch uint32
}

// Annotated is a Group that wants to know its callers.
type Annotated interface {
	Group

	// Annotate tells who makes the next call, and is called by the goroutine that
	// makes it. It holds for one call.
	Annotate(Caller)
}

// annotate tells g about the node that is running.
func annotate(g Group, x *graph.Exec) {
	a, ok := g.(Annotated)
	if !ok || x.Running == nil {
		return
	}
	a.Annotate(Caller{Node: x.Running.Node.Name, Pass: x.Running.Pass(), Step: x.Step, Microbatch: x.Microbatch})
}
