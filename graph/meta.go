package graph

import (
	"fmt"
	"strings"

	"github.com/lethe-go/lethe/device"
	"gorgonia.org/gorgonia"
)

// metaOf returns the meta of a node, making one for a stock Gorgonia node.
func (c *core) metaOf(n *gorgonia.Node) *meta {
	c.adopt()
	if m := c.metas[n.ID()]; m != nil {
		return m
	}
	return c.adoptNode(n) // a node of another graph
}

// adopt gives metas to the nodes that stock Gorgonia functions have added since
// the last call. It runs whenever the region or the phase changes, so that nodes
// are attributed by the range of their ids.
func (c *core) adopt() {
	all := c.g.AllNodes()
	for ; c.stockFrom < int64(len(all)); c.stockFrom++ {
		if n := all[c.stockFrom]; c.metas[n.ID()] == nil {
			c.metas[n.ID()] = c.adoptNode(n)
		}
	}
}

func (c *core) adoptNode(n *gorgonia.Node) *meta {
	kind := stockKind(n)
	scope := ""
	if c.region != nil {
		scope = c.region.Scope
	}
	m := c.newMeta(scope, (&Builder{core: c, scope: scope}).callName(kind))
	if n.Op() == nil {
		if name := n.Name(); name == "" || strings.HasPrefix(name, "%!s(<nil>)") { // how Gorgonia prints none
			c.fail("", "a stock Gorgonia input has no name: Gorgonia merges unnamed inputs of one shape: name it")
		}
		m.name, m.region, m.input = n.Name(), nil, true
		c.inputs = append(c.inputs, n)
	}
	spec, err := specOf(n)
	if err != nil {
		c.fail(m.name, err.Error())
	}
	m.spec, m.specs = spec, []device.Spec{spec}
	return m
}

// Wrap makes a Value of a node that stock Gorgonia functions added to b's
// ExprGraph.
func (b *Builder) Wrap(n *gorgonia.Node) Value {
	if v, bad := b.poisoned("wrap", nil); bad {
		return v
	}
	if n == nil || n.Graph() != b.core.g {
		return b.Fail("wrap: the node is not of this Builder's ExprGraph")
	}
	b.core.metaOf(n)
	return Value{b.core, n}
}

// spec of a node's (first) output.
func (c *core) spec(n *gorgonia.Node) device.Spec { return c.metaOf(n).spec }

// describe names a node in reports and errors; it never prints a value.
func (c *core) describe(n *gorgonia.Node) string {
	m := c.metaOf(n)
	if m.name == "" {
		return fmt.Sprintf("unnamed input %v", m.spec)
	}
	return m.name
}
