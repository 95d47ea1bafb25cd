package checkpoint

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Rules say who decided in the same words everywhere: "rule:" for those that
// nothing can change, "default:" for those that give way to a name.
const (
	rulePrefix    = "rule: "
	defaultPrefix = "default: "
)

// runsOnce is the absolute rule against ever running n again, or "".
func runsOnce(n *graph.Node) string {
	switch {
	case n.Effects.Has(graph.Discrete):
		return rulePrefix + "a discrete choice is made once"
	case n.Effects.Has(graph.SideEffect):
		return rulePrefix + "a side effect happens once"
	}
	return ""
}

// savedByDefault is the rule that saves n although a policy would recompute
// everything, or "".
func (f *forward) savedByDefault(n *graph.Node) string {
	switch {
	case n.Effects.Has(graph.Collective):
		return defaultPrefix + "collectives are not rerun"
	case isHostResult(n):
		return defaultPrefix + "host results are saved"
	case isInteger(n) && f.anyReader(n, countsRows):
		return defaultPrefix + "routing counts are saved"
	}
	return ""
}

// staysPut is the rule against offloading n, or "".
func (f *forward) staysPut(n *graph.Node) string {
	if output := f.isOutput(n); output != "" {
		return output
	}
	for _, s := range n.Out {
		if s.Place != device.OnHost {
			return ""
		}
	}
	return rulePrefix + "it is on the host"
}

func isHostResult(n *graph.Node) bool {
	if n.Effects.Has(graph.HostSync) || n.Kind == "to_host" {
		return true
	}
	for _, s := range n.Out {
		if s.Place == device.OnHost {
			return true
		}
	}
	return false
}

// countsRows reports whether n is on the way of routing counts: exchanged between
// ranks, or read by the host.
func countsRows(n *graph.Node) bool {
	return isHostResult(n) || n.Effects.Has(graph.Collective) && isInteger(n)
}

func isInteger(n *graph.Node) bool {
	for _, s := range n.Out {
		if s.DType.IsFloat() {
			return false
		}
	}
	return true
}

// readOutside returns the border rule if something outside of region reads n,
// itself or through views and waits, or "". Outside of all regions there is no
// border, but whoever runs the program reads its outputs.
func (f *forward) readOutside(n *graph.Node, region *graph.Region) string {
	if output := f.isOutput(n); output != "" {
		return output
	}
	if region == nil {
		return ""
	}
	reader := ""
	f.anyReader(n, func(u *graph.Node) bool {
		if !region.Contains(u.Region) || u.Phase == graph.After {
			reader = u.Name
		}
		return reader != ""
	})
	if reader == "" {
		return ""
	}
	return rulePrefix + "it is read outside its region by " + reader
}

// isOutput is the rule that whoever runs the program reads n, or "".
func (f *forward) isOutput(n *graph.Node) string {
	if output := f.output[n.ID]; output != "" {
		return rulePrefix + "it is the output " + output
	}
	return ""
}

// forward is what the rules need to know of a graph beyond its nodes.
type forward struct {
	nodes []*graph.Node // the computed nodes of the phase Forward
	// leader of a node is the one whose decision it follows: itself, or what a
	// view shares memory with, or the collective of a wait. It may be a
	// parameter or input. By id, nil for other phases.
	leader []*graph.Node
	live   []bool     // by id: a root needs the node
	output []string   // by id of a leader: name of an output of the program
	tags   [][]string // by id of a leader: tags of its followers
}

func newForward(g *graph.Graph) *forward {
	f := &forward{
		leader: make([]*graph.Node, len(g.Nodes)),
		live:   live(g),
		output: make([]string, len(g.Nodes)),
		tags:   make([][]string, len(g.Nodes)),
	}
	for _, n := range g.Nodes {
		if n.Phase != graph.Forward || !n.IsOp() {
			continue
		}
		f.nodes = append(f.nodes, n)
		l := n
		if followed := follows(n); followed != nil {
			l = followed
			if further := f.leader[followed.ID]; further != nil {
				l = further
			}
			f.tags[l.ID] = append(f.tags[l.ID], n.Tags...)
		}
		f.leader[n.ID] = l
	}
	for _, o := range g.Outputs {
		if l := f.leader[o.Edge.Node.ID]; l != nil {
			f.output[l.ID] = o.Name
		}
	}
	return f
}

// follows returns the input whose decision n follows, or nil. A wait is a view
// of what its collective will have written.
func follows(n *graph.Node) *graph.Node {
	if n.IsView() {
		return n.In[0].Node
	}
	return nil
}

// anyReader reports whether pred holds for a live reader of n, or of a view or
// wait that follows n, backward nodes left out.
func (f *forward) anyReader(n *graph.Node, pred func(*graph.Node) bool) bool {
	for _, u := range n.Users() {
		if u.Phase == graph.Backward || !f.live[u.ID] {
			continue
		}
		if pred(u) || follows(u) == n && f.anyReader(u, pred) {
			return true
		}
	}
	return false
}

// live marks, by id, the nodes that a root needs.
func live(g *graph.Graph) []bool {
	need := make([]bool, len(g.Nodes))
	for _, r := range g.Roots {
		need[r.ID] = true
	}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		if !need[i] {
			continue
		}
		for _, e := range g.Nodes[i].In {
			need[e.Node.ID] = true
		}
	}
	return need
}
