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

// Pass is the part of a training step that a collective belongs to.
type Pass uint8

// The passes.
const (
	// Direct calls come from no graph.
	Direct Pass = iota
	// Forward is a node's first run in the forward pass.
	Forward
	// Rerun is the second run of a forward node, for backward.
	Rerun
	// Backward is the run of a node of the backward pass.
	Backward
	// Update is what follows backward: norms, optimizer, counters.
	Update

	// Passes is the number of passes.
	Passes = iota
)

func (p Pass) String() string {
	return [...]string{"direct", "forward", "rerun", "backward", "update"}[p]
}

// Caller is on whose behalf a collective is called. Errors and flight records name it.
type Caller struct {
	// Node is the fully qualified name of the graph's node, "" for a direct call.
	Node string
	Pass Pass
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
	a.Annotate(Caller{Node: x.Running.Node.Name, Pass: PassOf(x.Running), Step: x.Step, Microbatch: x.Microbatch})
}

// PassOf is the pass that a step of a Program belongs to.
func PassOf(s *graph.Step) Pass {
	switch {
	case s.Kind == graph.Recompute:
		return Rerun
	case s.Node.Phase == graph.Forward:
		return Forward
	case s.Node.Phase == graph.Backward:
		return Backward
	}
	return Update
}
