package checkpoint

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// refusal is what stands against rerunning or offloading a node: a rule that nothing
// can change, or a default that gives way to a name. The zero refusal is none.
type refusal struct {
	by  graph.Decider
	why string
}

func rule(why string) refusal     { return refusal{graph.Rule, "rule: " + why} }
func givesWay(why string) refusal { return refusal{graph.Default, "default: " + why} }
func (r refusal) none() bool      { return r == refusal{} }

// runsOnce is the absolute rule against ever running n again.
func runsOnce(n *graph.Node) refusal {
	switch {
	case n.Effects.Has(graph.Discrete):
		return rule("a discrete choice is made once")
	case n.Effects.Has(graph.SideEffect):
		return rule("a side effect happens once")
	}
	return refusal{}
}

// savedByDefault is what saves n although a policy would recompute everything.
func (f *forward) savedByDefault(n *graph.Node) refusal {
	switch {
	case n.Effects.Has(graph.Collective):
		return givesWay("collectives are not rerun")
	case isHostResult(n):
		return givesWay("host results are saved")
	case isInteger(n) && f.anyReader(n, countsRows):
		return givesWay("routing counts are saved")
	}
	return refusal{}
}

// staysPut is the rule against offloading n.
func (f *forward) staysPut(n *graph.Node) refusal {
	if output := f.isOutput(n); !output.none() {
		return output
	}
	for _, s := range n.Out {
		if s.Place != device.OnHost {
			return refusal{}
		}
	}
	return rule("it is on the host")
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

// readOutside is the border rule: something outside of region reads n, itself or
// through views and waits. Outside of all regions there is no border, but whoever
// runs the program reads its outputs.
func (f *forward) readOutside(n *graph.Node, region *graph.Region) refusal {
	if output := f.isOutput(n); !output.none() {
		return output
	}
	if region == nil {
		return refusal{}
	}
	reader := ""
	f.anyReader(n, func(u *graph.Node) bool {
		if !region.Contains(u.Region) || u.Phase == graph.After {
			reader = u.Name
		}
		return reader != ""
	})
	if reader == "" {
		return refusal{}
	}
	return rule("it is read outside its region by " + reader)
}

// isOutput is the rule that whoever runs the program reads n.
func (f *forward) isOutput(n *graph.Node) refusal {
	if output := f.output[n.ID]; output != "" {
		return rule("it is the output " + output)
	}
	return refusal{}
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
