package graph

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Graph lowers what was built to a finished joint graph. Nothing can be built
// afterwards. It returns the first error of building.
func (b *Builder) Graph() (*Graph, error) {
	c := b.core
	if c.err != nil {
		return nil, c.err
	}
	if c.graph != nil {
		return c.graph, nil
	}
	c.adopt()
	if c.err != nil {
		return nil, c.err
	}
	l := &lowering{core: c, g: &Graph{Regions: c.regions, Store: c.store, rows: c.rows}, edges: map[int64]Edge{}}
	if err := l.run(); err != nil {
		c.err = err
		return nil, err
	}
	c.graph = l.g
	c.err = fmt.Errorf("graph: the graph is finished: build before calling Graph or Compile")
	return l.g, nil
}

// lowering turns Gorgonia nodes into Nodes, folding selects into edges.
type lowering struct {
	core  *core
	g     *Graph
	edges map[int64]Edge
}

func (l *lowering) run() error {
	for _, n := range l.core.g.AllNodes() {
		if s, ok := n.Op().(*selected); ok {
			l.edges[n.ID()] = Edge{l.edges[children(n)[0].ID()].Node, s.index}
			l.moveTags(n)
			continue
		}
		if err := l.node(n); err != nil {
			return err
		}
	}
	for _, x := range l.core.losses {
		l.g.Losses = append(l.g.Losses, Result{x.name, l.edges[x.node.ID()]})
	}
	for _, x := range l.core.outputs {
		e := l.edges[x.node.ID()]
		l.g.Outputs = append(l.g.Outputs, Result{x.name, e})
		l.g.Roots = append(l.g.Roots, e.Node)
	}
	for _, n := range l.core.effects {
		l.g.Roots = append(l.g.Roots, l.edges[n.ID()].Node)
	}
	for _, n := range l.core.inputs {
		l.g.Inputs = append(l.g.Inputs, l.edges[n.ID()].Node)
	}
	l.core.store.arrangeScratch(l.g)
	if len(l.g.Roots) == 0 {
		return fmt.Errorf("graph: nothing to compute: declare a loss, an output or an update")
	}
	return nil
}

func (l *lowering) node(n *gorgonia.Node) error {
	m := l.core.metas[n.ID()]
	x := &Node{ID: len(l.g.Nodes), Name: m.name, Scope: m.scope, Out: m.specs, Phase: m.phase, Region: m.region,
		Tags: m.tags, Source: m.source, Variable: m.binding, Commit: m.commit}
	if m.origin != nil {
		x.Origin = l.edges[m.origin.ID()].Node
		x.Region = x.Origin.Region
	}
	specs := make([]Edge, 0, 4)
	for _, k := range children(n) {
		e, ok := l.edges[k.ID()]
		if !ok {
			return fmt.Errorf("graph: %s: an input was built after it", m.name)
		}
		specs = append(specs, e)
	}
	x.In = specs
	if err := l.operation(n, x, m); err != nil {
		return fmt.Errorf("graph: %s: %w (%s)", m.name, err, m.source)
	}
	for _, e := range x.In {
		if u := e.Node.users; len(u) == 0 || u[len(u)-1] != x {
			e.Node.users = append(u, x)
		}
	}
	l.g.Nodes = append(l.g.Nodes, x)
	l.edges[n.ID()] = Edge{x, 0}
	return nil
}

// operation fills in what the node computes.
func (l *lowering) operation(n *gorgonia.Node, x *Node, m *meta) error {
	switch op := n.Op().(type) {
	case nil:
		x.Kind = "input"
		if m.binding != nil {
			x.Kind = m.binding.Kind.String()
		}
		x.bound = n.Value()
		return nil
	case *applied:
		x.Op = op.op
	default:
		stock, err := adaptStock(n, x)
		if err != nil {
			return err
		}
		x.Op = stock
	}
	x.Kind, x.Effects = x.Op.Kind(), x.Op.Effects()
	in := x.inputSpecs()
	x.Cost = x.Op.Cost(in)
	if isMutator(x.Op) {
		x.Effects |= SideEffect
		for _, i := range x.Mutates() {
			if x.In[i].Base().Node.Variable == nil {
				return fmt.Errorf("%s overwrites %s, which is not a parameter or state", x.Kind, x.In[i].Node.Name)
			}
		}
	}
	return nil
}

func (l *lowering) moveTags(n *gorgonia.Node) {
	e := l.edges[n.ID()]
	e.Node.Tags = append(e.Node.Tags, l.core.metas[n.ID()].tags...)
}
