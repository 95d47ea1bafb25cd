package graph

// Pass is when in a training step something runs: the [Phase] it belongs to, with second
// runs of forward nodes apart.
type Pass uint8

// The passes.
const (
	// NoPass is that of what no Program runs.
	NoPass Pass = iota
	// ForwardPass is a node's first run in the forward pass.
	ForwardPass
	// RerunPass is the second run of a forward node, for backward.
	RerunPass
	// BackwardPass is the run of a node of the backward pass.
	BackwardPass
	// UpdatePass is what follows backward: sums over ranks, norms, optimizers, counters.
	UpdatePass

	// Passes is the number of passes.
	Passes = iota
)

func (p Pass) String() string {
	return [...]string{"direct", "forward", "rerun", "backward", "update"}[p]
}

// Pass that the step belongs to. A Wait belongs to that of what it waits for.
func (s *Step) Pass() Pass {
	switch {
	case s.Kind == Wait:
		return s.waits.Pass()
	case s.Kind == Recompute:
		return RerunPass
	case s.Kind == CopyBack:
		return BackwardPass
	case s.Node.Phase == Forward:
		return ForwardPass
	case s.Node.Phase == Backward:
		return BackwardPass
	}
	return UpdatePass
}
