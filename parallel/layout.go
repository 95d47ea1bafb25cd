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
	// Shard are the ranks that divide the rows of every parameter but those of experts,
	// ExpertShard those that divide the experts of a place. nil does not divide.
	Shard, ExpertShard collective.Group
}

// GatheredTag is the tag of a parameter that has been gathered for a use, by which policies
// may ask for it.
const GatheredTag = "gathered_parameter"

// Place implements graph.Layout.
func (l Layout) Place(name string, global []int) (shape, offset []int) {
	shape, offset = l.Experts.Place(name, global)
	if g := l.group(name, shape); g != nil {
		shape[0] = partRows(shape[0], g)
		offset[0] += g.Rank() * shape[0]
	}
	return shape, offset
}

// Assemble implements graph.Assembler: it gathers a parameter of which the ranks of a group
// have parts. In backward the gradient goes back by a reduce-scatter.
func (l Layout) Assemble(b *graph.Builder, p *graph.Variable, part graph.Value) graph.Value {
	shape, _ := l.Experts.Place(p.Name, p.Global)
	g := l.group(p.Name, shape)
	if g == nil {
		return part
	}
	return b.Tag(collective.AllGatherRows(b, g, part, shape[0]).Wait(), GatheredTag)
}

// group divides the rows of a parameter, of which expert parallelism leaves this shape; nil
// if nothing does.
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

// partRows is the number of rows of a part, padding included.
func partRows(rows int, g collective.Group) int { return (rows + g.Size() - 1) / g.Size() }
