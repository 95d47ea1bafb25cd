package parallel

import (
	"slices"
	"strings"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/graph"
)

// This file is tensor parallelism (Shoeybi et al. 2019, Megatron-LM) with activations between
// modules divided by rows (Korthikanti et al. 2022, sequence parallelism).

// GatheredActivationTag is the tag of an activation that has been gathered for a module which
// ranks compute together, by which policies may ask for it.
const GatheredActivationTag = "gathered_activation"

// shared lists the parameters of which each rank has a part, by the end of their names, with
// the dimension that is divided: 0 are the outputs of a linear layer (column parallel) or the
// rows of a table, 1 its inputs (row parallel); experts have a dimension of their own in front.
// All others are whole.
var shared = []struct {
	name      []string
	dimension int
}{
	{[]string{"tok_embeddings", "weight"}, 0},
	{[]string{"output", "weight"}, 0},
	{[]string{"attention", "wq", "weight"}, 0},
	{[]string{"attention", "wk", "weight"}, 0},
	{[]string{"attention", "wv", "weight"}, 0},
	{[]string{"attention", "wq_b", "weight"}, 0},
	{[]string{"attention", "wkv_b", "weight"}, 0},
	{[]string{"attention", "wo", "weight"}, 1},
	{[]string{"feed_forward", "w1", "weight"}, 0},
	{[]string{"feed_forward", "w3", "weight"}, 0},
	{[]string{"feed_forward", "w2", "weight"}, 1},
	{[]string{"shared_experts", "w1", "weight"}, 0},
	{[]string{"shared_experts", "w3", "weight"}, 0},
	{[]string{"shared_experts", "w2", "weight"}, 1},
	{[]string{"experts", "w1"}, 1},
	{[]string{"experts", "w3"}, 1},
	{[]string{"experts", "w2"}, 2},
}

// SharedDimension is the dimension of a parameter that tensor parallelism divides, by its fully
// qualified name; ok is false if that is none. It is that of moments and gradients too, whose
// names end with that of their parameter.
func SharedDimension(name string) (dimension int, ok bool) {
	segments := strings.Split(name, ".")
	for _, s := range shared {
		if n := len(segments) - len(s.name); n >= 0 && slices.Equal(segments[n:], s.name) {
			return s.dimension, true
		}
	}
	return 0, false
}

// together lists the modules that ranks compute together, by the last segment of their scopes.
// What they read is gathered, and what they return is added up and divided.
var together = []string{"tok_embeddings", "attention", "feed_forward", "moe", "output"}

// computedTogether reports whether the module of b's scope is, under this layout.
func (l Layout) computedTogether(b *graph.Builder) bool {
	scope := b.Name()
	return l.Tensor != nil && slices.Contains(together, scope[strings.LastIndexByte(scope, '.')+1:])
}

// Enter implements graph.Distributor: it gathers the rows of x over ranks. In backward the
// gradients of all ranks are added up and divided.
func (l Layout) Enter(b *graph.Builder, x graph.Value) graph.Value {
	if !l.computedTogether(b) {
		return x
	}
	part := x.Part()
	if part.IsWhole() {
		return b.Fail("tensor parallel: %s is not divided among ranks: want what another such module, one of %v, has returned, or what is computed of it row by row", x.Name(), together)
	}
	rows := collective.AllGatherRows(b, l.Tensor, x, part.Rows()).Wait()
	return graph.Reshape(b.Tag(rows, GatheredActivationTag), part.Whole...)
}

// Leave implements graph.Distributor: it adds up y over ranks and returns this rank's rows of
// the sum, ⌈rows / ranks⌉ of them, [rows, D]: the last ranks' may reach beyond the end, with
// zeros. In backward the gradients of all rows are gathered.
func (l Layout) Leave(b *graph.Builder, y graph.Value) graph.Value {
	if !l.computedTogether(b) {
		return y
	}
	sum := collective.ReduceScatter(b, l.Tensor, graph.Reshape(y, -1, y.Dim(-1))).Wait()
	return b.WithPart(sum, graph.Part{Whole: y.Shape(), First: l.Tensor.Rank() * sum.Dim(0)})
}

// Gather implements graph.Distributor.
func (l Layout) Gather(b *graph.Builder, x graph.Value) graph.Value {
	return collective.AllGather(b, l.Tensor, x).Wait()
}
