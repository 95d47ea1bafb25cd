package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/device"
	"gorgonia.org/gorgonia"
)

// Graph is the finished joint graph of a Builder: forward, backward and what
// comes after, in an order in which every node follows its inputs.
type Graph struct {
	Nodes   []*Node
	Regions []*Region
	Losses  []Result
	Outputs []Result
	Inputs  []*Node
	// Roots are the nodes that must run: outputs, effects and updates.
	Roots []*Node
	Store *Store

	rows []rowCount
}

// Result is a named edge.
type Result struct {
	Name string
	Edge Edge
}

// Node is one operation, parameter, state or input of a finished graph.
type Node struct {
	ID    int    // index in Graph.Nodes
	Name  string // fully qualified, such as "layers.0.attention.matmul:1"
	Scope string
	Kind  string // Op.Kind(), or "parameter", "state", "input"

	Op  Op // nil for parameters, states and inputs
	In  []Edge
	Out []device.Spec

	Phase   Phase
	Region  *Region
	Effects Effects
	Cost    Cost
	Tags    []string
	Source  string // file.go:line of the model code that built it
	// Origin is the forward node whose gradient a backward node belongs to.
	Origin *Node

	// Variable is the parameter or state, or nil.
	Variable *Variable
	// Commit nodes run last, after the losses were found to be finite.
	Commit bool

	users []*Node
	bound gorgonia.Value // first value of a stock input
}

// Edge is one output of a node.
type Edge struct {
	Node *Node
	Out  int
}

// Spec of the value on the edge.
func (e Edge) Spec() device.Spec { return e.Node.Out[e.Out] }

// Users are the nodes that read any output of n, in order, each once.
func (n *Node) Users() []*Node { return n.users }

// IsOp reports whether n is computed, as opposed to given.
func (n *Node) IsOp() bool { return n.Op != nil }

// IsView reports whether n only shares the memory of its first input.
func (n *Node) IsView() bool {
	_, ok := n.Op.(Viewer)
	return ok
}

// Bytes is the size of all outputs, at the bound for dynamic rows.
func (n *Node) Bytes() int64 {
	var sum int64
	for _, s := range n.Out {
		sum += s.Bytes()
	}
	return sum
}

// Tagged reports whether n carries the tag.
func (n *Node) Tagged(tag string) bool { return slices.Contains(n.Tags, tag) }

// Mutates lists the inputs that n overwrites.
func (n *Node) Mutates() []int {
	if m, ok := n.Op.(Mutator); ok {
		return m.Mutates()
	}
	return nil
}

// String gives name, kind and specs.
func (n *Node) String() string {
	var out []string
	for _, s := range n.Out {
		out = append(out, s.String())
	}
	return fmt.Sprintf("%s %s %s", n.Name, n.Kind, strings.Join(out, " "))
}

// Base follows views from an edge to the edge whose memory it shares.
func (e Edge) Base() Edge {
	for e.Node.IsView() {
		e = e.Node.In[0]
	}
	return e
}

// needed marks the nodes that the roots depend on.
func (g *Graph) needed() []bool {
	need := make([]bool, len(g.Nodes))
	for _, r := range g.Roots {
		need[r.ID] = true
	}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		if need[i] {
			for _, e := range g.Nodes[i].In {
				need[e.Node.ID] = true
			}
		}
	}
	return need
}

// CostAt is the Cost of one run of an op with the given live rows.
func (n *Node) CostAt(counts Counts) Cost {
	return n.Op.Cost(counts.narrowAll(n.inputSpecs()))
}

// inputSpecs are the specs of n's inputs.
func (n *Node) inputSpecs() []device.Spec {
	in := make([]device.Spec, len(n.In))
	for i, e := range n.In {
		in[i] = e.Spec()
	}
	return in
}
