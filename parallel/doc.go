// Package parallel divides the parameters and activations of a model among ranks, from outside
// of the model's code: a [Layout] is given to the graph.Store, [graph.Builder.Parameter] returns
// what the model computes with, and modules pass activations through [graph.Builder.Enter] and
// [graph.Builder.Leave].
//
// A parameter is divided in one order, which is that of the fields of [Layout]:
//
//  1. Expert parallel: of the weights of routed experts a rank has some experts. Tokens
//     travel to them; see package moe.
//  2. Tensor parallel (Shoeybi et al. 2019): ranks compute the same sequences together. Of
//     attention each has some heads, of a feed-forward and of every expert some hidden units,
//     of the embedding and the output some of the vocabulary: [SharedDimension] lists them by
//     name. Everything else, such as norms, routers and the latent projections of MLA, is
//     whole.
//  3. Fully sharded (Rajbhandari et al. 2020, ZeRO stage 3; Zhao et al. 2023, FSDP): of what
//     is left, each rank of a group keeps an equal number of rows. The parameter is gathered
//     for each use by a node of the kind all_gather, and its gradient is added up over the
//     group and divided by a reduce_scatter.
//
// Where ranks compute together, each has between modules some rows (tokens) of an activation
// (Korthikanti et al. 2022): norms, residual sums and dropout work on those alone. A module
// gathers the rows when it begins, and its results, of which each rank has a term, are added
// up and divided by a reduce_scatter when it ends. In backward they change places. So the
// gradient of what is whole is on every rank that of its tokens, heads or hidden units, and is
// added up over the ranks like that of other sequences, and the loss is the sum of those of the
// ranks. All tokens are routed on every rank, alike, and each all-to-all of experts stays among
// ranks of one place in their tensor groups.
//
// Gathering is a node like any other: a policy says whether its result is kept for backward or
// gathered again ("reshard after forward"), its memory is planned in the arena, and the
// scheduler lets it set out one layer ahead. Since the optimizer sees parts alone, so are
// gradients and moments of parts.
//
// Where the rows are no multiple of the ranks the last parts are padded with zeros: a part
// has ⌈rows / ranks⌉ rows. That holds for the vocabulary and for the tokens of an activation
// too; heads and hidden units must be divisible. A parameter with fewer rows than the shard
// group has ranks is whole on each of them.
package parallel
