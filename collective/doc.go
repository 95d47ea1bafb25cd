// Package collective lets the ranks of a job exchange tensors: as calls on a
// [Group] at run time, and as nodes of a graph.
//
// # Ranks
//
// Every rank builds the same graph with its own shards and takes part in every
// collective, in the same order, even with zero rows. A call that another rank
// does not match, that outlives its deadline or whose peer has failed returns an
// error on every rank.
//
// # Graph ops
//
// A collective op runs on a lane of its own, one for each group, beside the
// compute lane. It returns a [Pending]; only [Pending.Wait] makes it a Value. Its
// buffers stay in memory until then. Gradients are collectives again: that of an
// all-to-all is the all-to-all the other way, all-gather and reduce-scatter are each
// other's, and that of a broadcast is a sum at its root. Checkpoint policies know the
// ops as all_to_all, all_reduce, all_gather, reduce_scatter and broadcast; without being
// told by that name they rerun none.
package collective
