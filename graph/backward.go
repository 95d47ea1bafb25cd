package graph

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Backward adds the gradients of the sum of all losses and returns those with
// respect to the given values: a reverse sweep over the graph, last node first.
// A value that reaches no loss gets zeros and a warning. Backward is called
// once; nodes built later belong to the phase After.
func (b *Builder) Backward(wrt ...Value) []Value {
	c := b.core
	out := make([]Value, len(wrt))
	for i := range out {
		out[i] = Value{core: c}
	}
	if _, bad := b.poisoned("backward", wrt); bad {
		return out
	}
	switch {
	case c.phase != Forward:
		b.Fail("backward: was called before on this graph")
		return out
	case len(c.losses) == 0:
		b.Fail("backward: there is no loss: call AddLoss first")
		return out
	}
	c.adopt()
	c.phase = Backward
	s := newSweep(b, wrt)
	s.run()
	for i, v := range wrt {
		g := s.total(v.node, 0)
		if g.IsNone() && c.err == nil {
			c.warnings = append(c.warnings, fmt.Sprintf("%s reaches no loss: its gradient is zero", v.Name()))
			spec := v.Spec()
			g = (&Builder{core: c, scope: c.metaOf(v.node).scope}).Full(0, spec.DType, spec.Shape...)
		}
		out[i] = g
	}
	c.adopt()
	c.phase, c.origin = After, nil
	return out
}

// sweep is the state of one reverse sweep.
type sweep struct {
	b    *Builder
	all  gorgonia.Nodes
	need []bool // by id: a wanted value reaches the node
	// grads holds, by node id and output, the gradients that have arrived.
	grads map[int64][][]Value
}

func newSweep(b *Builder, wrt []Value) *sweep {
	all := append(gorgonia.Nodes(nil), b.core.g.AllNodes()...)
	s := &sweep{b: b, all: all, need: make([]bool, len(all)), grads: map[int64][][]Value{}}
	for _, v := range wrt {
		s.need[v.node.ID()] = true
	}
	for i, n := range all {
		kids := children(n)
		op, ok := n.Op().(gorgonia.SDOp)
		if s.need[i] || len(kids) == 0 || !ok {
			continue
		}
		diff := op.DiffWRT(len(kids))
		for j, k := range kids {
			if j < len(diff) && diff[j] && s.need[k.ID()] {
				s.need[i] = true
			}
		}
	}
	return s
}

func (s *sweep) run() {
	c := s.b.core
	for _, l := range c.losses {
		spec := c.spec(l.node)
		seed := (&Builder{core: c, scope: c.metaOf(l.node).scope}).Full(1, spec.DType)
		s.arrive(l.node, 0, seed)
	}
	for i := len(s.all) - 1; i >= 0 && c.err == nil; i-- {
		n := s.all[i]
		if !s.need[i] || s.grads[n.ID()] == nil || len(children(n)) == 0 {
			continue
		}
		c.origin = n
		if err := s.visit(n); err != nil {
			c.fail(c.describe(n), fmt.Sprintf("gradient: %v", err))
		}
		c.adopt()
	}
	c.origin = nil
}

// visit sends the gradients of n's outputs on to its inputs.
func (s *sweep) visit(n *gorgonia.Node) error {
	kids := children(n)
	switch op := n.Op().(type) {
	case *selected:
		s.arrive(kids[0], op.index, s.total(n, 0))
		return nil
	case *applied:
		return s.visitApplied(n, op, kids)
	}
	grads, err := stockGradient(s.b.core, n, kids, s.total(n, 0).node)
	if err != nil {
		return err
	}
	for i, k := range kids {
		if grads[i] != nil && s.need[k.ID()] {
			s.arrive(k, 0, Value{s.b.core, grads[i]})
		}
	}
	return nil
}

func (s *sweep) visitApplied(n *gorgonia.Node, a *applied, kids gorgonia.Nodes) error {
	op, ok := a.op.(Differentiable)
	if !ok {
		return nil
	}
	c := s.b.core
	in := make([]Value, len(kids))
	for i, k := range kids {
		in[i] = Value{c, k}
	}
	out, grad := make([]Value, len(a.out)), make([]Value, len(a.out))
	for i := range grad {
		out[i], grad[i] = s.output(n, a, i), s.total(n, i)
	}
	back := op.Gradient(&Builder{core: c, scope: c.metaOf(n).scope}, in, out, grad)
	if c.err == nil && len(back) != len(in) {
		return fmt.Errorf("%s: returned %d gradients for %d inputs", a.op.Kind(), len(back), len(in))
	}
	for i, k := range kids {
		if c.err != nil {
			return nil
		}
		if back[i].IsNone() || !s.need[k.ID()] {
			continue
		}
		// The gradient of a Wait is on its way to where the value came from.
		_, waiter := op.(Waiter)
		if g := back[i].Spec(); !waiter && (g.DType != a.in[i].DType || g.Len() != a.in[i].Len()) {
			return fmt.Errorf("%s: gradient %v of input %d, which is %v", a.op.Kind(), g, i, a.in[i])
		}
		s.arrive(k, 0, back[i])
	}
	return nil
}

// output returns the Value of output i of an applied node.
func (s *sweep) output(n *gorgonia.Node, a *applied, i int) Value {
	if len(a.out) == 1 {
		return Value{s.b.core, n}
	}
	for _, m := range s.b.core.selectsOf(n) {
		if m.Op().(*selected).index == i {
			return Value{s.b.core, m}
		}
	}
	return Value{core: s.b.core}
}

// selectsOf returns the nodes that pick the outputs of n. They were added right
// behind it.
func (c *core) selectsOf(n *gorgonia.Node) gorgonia.Nodes {
	all := c.g.AllNodes()
	var out gorgonia.Nodes
	for i := n.ID() + 1; i < int64(len(all)); i++ {
		if _, ok := all[i].Op().(*selected); !ok || children(all[i])[0] != n {
			break
		}
		out = append(out, all[i])
	}
	return out
}

// arrive adds a gradient to output i of n.
func (s *sweep) arrive(n *gorgonia.Node, i int, g Value) {
	if g.node == nil {
		return
	}
	list := s.grads[n.ID()]
	for len(list) <= i {
		list = append(list, nil)
	}
	list[i] = append(list[i], g)
	s.grads[n.ID()] = list
}

// total is the sum of the gradients of output i of n, in the order in which they
// arrived, or None.
func (s *sweep) total(n *gorgonia.Node, i int) Value {
	list := s.grads[n.ID()]
	if i >= len(list) || len(list[i]) == 0 {
		return None
	}
	sum := list[i][0]
	for _, g := range list[i][1:] {
		sum = At(sum).Apply(add{}, sum, g)
	}
	list[i] = []Value{sum}
	return sum
}
