package graph

import (
	"fmt"
	"iter"
	"strings"
)

// Describe gives a line for each node: its name, operation, inputs, outputs and effects.
// Ranks that are to run together have equal lines.
func (g *Graph) Describe() iter.Seq[string] {
	return func(yield func(string) bool) {
		var in strings.Builder
		for _, n := range g.Nodes {
			in.Reset()
			for _, e := range n.In {
				fmt.Fprintf(&in, " %s:%d", e.Node.Name, e.Out)
			}
			if !yield(fmt.Sprintf("%v of%s, %v, effects %d", n, in.String(), n.Phase, n.Effects)) {
				return
			}
		}
	}
}

// Describe gives a line for each node of the plan's graph that it decides about.
func (p *Plan) Describe(g *Graph) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, n := range g.Nodes {
			if n.IsOp() && n.Phase == Forward && !yield(fmt.Sprintf("%s: %v (%s)", n.Name, p.Entries[i].Choice, p.Entries[i].Why)) {
				return
			}
		}
	}
}
