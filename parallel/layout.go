package parallel

import (
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
)

// Layout is the graph.Layout of one rank. Fields are applied in their order.
type Layout struct {
	// Experts is the rank's place among those that divide the experts of every layer.
	Experts moe.ExpertLayout
	// Tensor are the ranks that compute modules together. nil does not divide.
	Tensor collective.Group
	// Shard are the ranks that divide the rows of every parameter but those of experts,
	// ExpertShard those that divide the experts of a place. nil does not divide.
	Shard, ExpertShard collective.Group
}

// GatheredTag is the tag of a parameter that has been gathered for a use, by which policies
// may ask for it.
const GatheredTag = "gathered_parameter"

// Place implements graph.Layout.
func (l Layout) Place(name string, global []int) (shape, offset []int, padding int) {
	shape, offset, padding = l.used(name, global)
	if g := l.group(name, shape); g != nil {
		padding = takePart(g, 0, shape, offset, padding)
	}
	return shape, offset, padding
}

// used is the place of what this rank computes with, which sharding divides.
func (l Layout) used(name string, global []int) (shape, offset []int, padding int) {
	shape, offset, padding = l.Experts.Place(name, global)
	if dimension, ok := SharedDimension(name); ok && l.Tensor != nil {
		padding = takePart(l.Tensor, dimension, shape, offset, padding)
	}
	return shape, offset, padding
}

// takePart narrows a place, of which the last rows are padding, to this rank's of equal parts
// along a dimension, and returns the padding of that. What no multiple of the ranks has, the
// last parts are padded with; only the first dimension may need it.
func takePart(g collective.Group, dimension int, shape, offset []int, padding int) int {
	live, part := shape[0]-padding, collective.PartRows(shape[dimension], g.Size())
	first := g.Rank() * part
	shape[dimension] = part
	offset[dimension] += first
	if dimension > 0 {
		return padding
	}
	return part - max(0, min(part, live-first))
}

// Assemble implements graph.Assembler: it gathers a parameter of which the ranks of a group
// have parts. In backward the gradient goes back by a reduce-scatter.
func (l Layout) Assemble(b *graph.Builder, p *graph.Variable, part graph.Value) graph.Value {
	shape, offset, _ := l.used(p.Name, p.Global)
	if g := l.group(p.Name, shape); g != nil {
		part = b.Tag(collective.AllGatherRows(b, g, part, shape[0]).Wait(), GatheredTag)
	}
	if dimension, ok := SharedDimension(p.Name); ok && dimension == 0 && l.Tensor != nil {
		part = b.WithPart(part, graph.Part{Whole: p.Global, First: offset[0]})
	}
	return part
}

// group divides the rows of a parameter, of which this rank computes with this shape; nil if
// nothing does.
func (l Layout) group(name string, shape []int) collective.Group {
	g := l.Shard
	if moe.IsExpert(name) {
		g = l.ExpertShard
	}
	if g == nil || len(shape) == 0 || shape[0] < g.Size() {
		return nil
	}
	return g
}
