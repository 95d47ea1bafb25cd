package graph

// Region is a part of the forward graph with a policy of its own.
type Region struct {
	ID     int
	Parent *Region // nil for an outermost region
	Policy Policy
	Scope  string // of the Builder that opened it
	Source string // file.go:line
}

// Contains reports whether s is r or lies inside it.
func (r *Region) Contains(s *Region) bool {
	for ; s != nil; s = s.Parent {
		if s == r {
			return true
		}
	}
	return false
}

// Decision is what a policy says about a node.
type Decision uint8

const (
	// Auto leaves the node to outer regions and to the planner.
	Auto Decision = iota
	// MustSave keeps the node's results until backward has read them.
	MustSave
	// PreferSave is MustSave unless a byte budget needs it otherwise.
	PreferSave
	// MustRecompute drops the results after forward and runs the node again.
	MustRecompute
	// PreferRecompute is MustRecompute unless the planner finds saving better.
	PreferRecompute
	// MustOffload moves the results away after forward and back before backward.
	MustOffload
	// PreferOffload is MustOffload unless the planner finds another way better.
	PreferOffload
)

func (d Decision) String() string {
	return [...]string{"auto", "must_save", "prefer_save", "must_recompute", "prefer_recompute", "must_offload", "prefer_offload"}[d]
}

// Policy decides about one node of a region. It is called once per forward node
// of the region, in construction order, when the plan is made.
type Policy func(c Candidate) Decision

// Candidate is what a policy may know about a node.
type Candidate struct {
	*Node
	// Index counts the nodes of the same kind in the region before this one,
	// leaving out those a force-recompute pattern names.
	Index int
	// Forced reports that a force-recompute pattern names the node; the policy's
	// answer does not matter then.
	Forced bool
}
