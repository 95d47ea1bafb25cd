package train

import (
	"slices"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/parallel"
)

// division says along which axes of a layout ranks divide a variable: the places of a tensor
// group, and the tensor groups of a replica for sharding and expert parallelism. The zero
// value is a variable that is whole on every rank.
type division struct{ tensor, shard bool }

// divisionOf a variable. An axis of one rank divides what the other one does.
func (l layout) divisionOf(v *graph.Variable) division {
	if !divided(v) {
		return division{}
	}
	shape := slices.Clone(v.Global)
	dimension, tensor := parallel.SharedDimension(v.Name)
	if tensor {
		shape[dimension] = collective.PartRows(shape[dimension], l.tensors)
	}
	return division{tensor: tensor || l.tensors == 1, shard: l.shardPlaces() == 1 || !slices.Equal(shape, v.Spec.Shape)}
}

// divisions are all but that into nothing.
var divisions = []division{{tensor: true, shard: true}, {tensor: true}, {shard: true}}

// copiesOf gives the ranks that hold the same part as a rank: all of them if it is whole.
func (l layout) copiesOf(d division) func(rank int) []int {
	return func(rank int) []int {
		return l.those(func(r int) bool {
			return (!d.tensor || l.tensorPlace(r) == l.tensorPlace(rank)) && (!d.shard || l.shardPlace(r) == l.shardPlace(rank))
		})
	}
}

// holders lists, for each way to divide a variable, the holders of each of its parts.
func (l layout) holders() map[division][][]int {
	list := map[division][][]int{{}: {l.all(l.ranks())}}
	for _, d := range divisions {
		for _, r := range l.partsOf(d)(0) {
			list[d] = append(list[d], l.copiesOf(d)(r))
		}
	}
	return list
}

// partsOf gives the ranks that hold all parts together, as those of a rank's replica do.
func (l layout) partsOf(d division) func(rank int) []int {
	return func(rank int) []int {
		return l.those(func(r int) bool {
			return l.replica(r) == l.replica(rank) &&
				(d.tensor || l.tensorPlace(r) == l.tensorPlace(rank)) && (d.shard || l.shardPlace(r) == l.shardPlace(rank))
		})
	}
}

// ofBoth gives ranks only if both axes have several; other groups are the same otherwise.
func (l layout) ofBoth(ranks func(rank int) []int) func(rank int) []int {
	if l.tensors == 1 || l.shardPlaces() == 1 {
		return func(int) []int { return nil }
	}
	return ranks
}

// copies are the ranks that hold the same part as this one; nil if there are no others.
func (e ends) copies(d division) collective.Group {
	switch d {
	case division{}:
		return e.data
	case division{tensor: true}:
		return e.tensorCopies
	case division{shard: true}:
		return e.shardCopies
	}
	return e.replica
}

// parts are the ranks that hold all parts together.
func (e ends) parts(d division) collective.Group {
	switch {
	case d.tensor && d.shard && e.model != nil:
		return e.model
	case d.tensor && e.tensor != nil:
		return e.tensor
	case e.shard != nil:
		return e.shard
	}
	return e.expert
}

// sameSequences are the ranks of one place in all tensor groups, which have counted the tokens
// of the job together.
func (e ends) sameSequences() collective.Group {
	switch {
	case e.tensorCopies != nil:
		return e.tensorCopies
	case e.tensor != nil:
		return e.replica
	}
	return e.data
}
