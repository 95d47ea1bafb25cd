package train

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lethe-go/lethe/graph"
)

// HeldValue is a value that is alive in an arena.
type HeldValue struct {
	// Node that made it, by its fully qualified name, and the kind of that operation.
	Node string `json:"node"`
	Kind string `json:"kind"`
	// Use is what the value is there for: "saved for backward", "forward", "rerun", "reloaded",
	// "backward", "gradient" or "workspace".
	Use string `json:"use"`
	// Region whose policy decides about the node, or "outside of regions".
	Region string `json:"region"`
	// Shape with the dtype, at the bound of dynamic rows; empty for workspace.
	Shape string `json:"shape,omitempty"`
	// Bytes that it takes, for the rows there are.
	Bytes int64 `json:"bytes"`
	// Source is the line of model code that built the node.
	Source string `json:"source"`
}

// heldAt lists what is alive in the arena at a step of the schedule, the largest first.
func heldAt(p *graph.Program, counts graph.Counts, index int) []HeldValue {
	held := []HeldValue{}
	for _, s := range p.Storages {
		if s.Begin > index || s.End < index {
			continue
		}
		n := s.Edge.Node
		v := HeldValue{Node: n.Name, Kind: n.Kind, Use: useOf(s), Region: regionOf(n), Bytes: s.BytesAt(counts), Source: n.Source}
		if !s.Workspace() {
			v.Shape = s.Edge.Spec().String()
		}
		held = append(held, v)
	}
	slices.SortStableFunc(held, func(a, b HeldValue) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return held
}

// What values are there for.
const (
	useSaved     = "saved for backward"
	useForward   = "forward"
	useRerun     = "rerun"
	useReloaded  = "reloaded"
	useBackward  = "backward"
	useGradient  = "gradient" // or the factor that clips it: what one Program leaves to the next
	useWorkspace = "workspace"
)

func useOf(s *graph.Storage) string {
	switch {
	case s.Workspace():
		return useWorkspace
	case s.Scratch():
		return useGradient
	case s.Saved:
		return useSaved
	case s.Rerun:
		return useRerun
	case s.Reloaded:
		return useReloaded
	case s.Edge.Node.Phase == graph.Forward:
		return useForward
	}
	return useBackward
}

func regionOf(n *graph.Node) string {
	if n.Region == nil {
		return "outside of regions"
	}
	return n.Region.Scope
}

// HeldSum is the bytes of values that have something in common.
type HeldSum struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// sumHeld adds up values by a name, the largest sum first.
func sumHeld(held []HeldValue, name func(HeldValue) string) []HeldSum {
	sums := map[string]int64{}
	for _, v := range held {
		sums[name(v)] += v.Bytes
	}
	return largestFirst(sums)
}

func largestFirst(sums map[string]int64) []HeldSum {
	list := []HeldSum{}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, HeldSum{name, sums[name]})
	}
	slices.SortStableFunc(list, func(a, b HeldSum) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

func totalHeld(held []HeldValue) int64 {
	var sum int64
	for _, v := range held {
		sum += v.Bytes
	}
	return sum
}
