package train

import (
	"slices"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/graph"
)

// bucketBytes is up to how much of small gradients is sent as one: what a collective costs
// besides its bytes is then paid once for all of them. A gradient of as many bytes is sent
// by itself, from where it lies.
const bucketBytes = 1 << 20

// reduce adds up the gradients of the ranks that hold the same part of a parameter, while
// backward goes on: those of the last layers, which are there first, set out first. The
// Program ends when all have arrived. Ranks that shard a parameter have added up theirs in
// backward.
func (c *compiler) reduce(b *graph.Builder, parameters []*graph.Variable) {
	scope := b.Scope("gradients")
	var sent []*collective.Pending
	send := func(g collective.Group, gradients ...graph.Value) {
		if len(gradients) > 0 {
			sent = append(sent, collective.AllReduceStates(scope, g, gradients...))
		}
	}
	for _, g := range []collective.Group{c.ends.data, c.ends.replica, c.ends.tensorCopies, c.ends.shardCopies} {
		var bucket []graph.Value
		var bytes int64
		for _, p := range slices.Backward(parameters) {
			gradient := c.store.Variable(gradientPrefix + p.Name)
			if g == nil || c.ends.copies(c.layout.divisionOf(p)) != g {
				continue
			}
			n := gradient.Spec.Bytes()
			if n >= bucketBytes {
				send(g, b.Variable(gradient))
				continue
			}
			if bytes+n > bucketBytes {
				send(g, bucket...)
				bucket, bytes = nil, 0
			}
			bucket, bytes = append(bucket, b.Variable(gradient)), bytes+n
		}
		send(g, bucket...)
	}
	if len(sent) > 0 {
		collective.Join(scope, sent...)
	}
}
