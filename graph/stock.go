package graph

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

func stockKind(n *gorgonia.Node) string {
	if n.Op() == nil {
		return "input"
	}
	return "stock"
}

func stockGradient(c *core, n *gorgonia.Node, kids gorgonia.Nodes, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("not supported")
}

func adaptStock(n *gorgonia.Node, x *Node) (Op, error) {
	return nil, fmt.Errorf("not supported")
}
