// Package parallel divides the parameters of a model among ranks, from outside of the model's
// code: a [Layout] is given to the graph.Store, and [graph.Builder.Parameter] returns what the
// model computes with.
//
// A parameter is divided in one order, which is that of the fields of [Layout]:
//
//  1. Expert parallel: of the weights of routed experts a rank has some experts. Tokens
//     travel to them; see package moe.
//  2. Fully sharded (Rajbhandari et al. 2020, ZeRO stage 3; Zhao et al. 2023, FSDP): of what
//     is left, each rank of a group keeps an equal number of rows. The parameter is gathered
//     for each use by a node of the kind all_gather, and its gradient is added up over the
//     group and divided by a reduce_scatter.
//
// Gathering is a node like any other: a policy says whether its result is kept for backward or
// gathered again ("reshard after forward"), its memory is planned in the arena, and the
// scheduler lets it set out one layer ahead. Since the optimizer sees parts alone, so are
// gradients and moments of parts.
//
// Where the rows are no multiple of the ranks the last parts are padded with zeros: a part
// has ⌈rows / ranks⌉ rows. A parameter with fewer rows than the group has ranks is whole on
// each of them.
package parallel
