package moe

import (
	"slices"
	"strings"
)

// ExpertLayout is the graph.Layout of one rank in expert parallelism: of the experts'
// weights, whose names hold the segment "experts", it has the Rank-th of Ranks equal
// parts of the first dimension; everything else is whole.
type ExpertLayout struct{ Rank, Ranks int }

// Place implements graph.Layout.
func (l ExpertLayout) Place(name string, global []int) (shape, offset []int, padding int) {
	shape, offset = slices.Clone(global), make([]int, len(global))
	if IsExpert(name) {
		shape[0] = global[0] / l.Ranks
		offset[0] = shape[0] * l.Rank
	}
	return shape, offset, 0
}

// IsExpert reports whether a parameter belongs to routed experts, by its fully
// qualified name.
func IsExpert(name string) bool { return slices.Contains(strings.Split(name, "."), "experts") }
