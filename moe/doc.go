// Package moe builds mixture-of-experts layers out of graph nodes that a policy can
// mark: routing, dispatch, experts and combine are each visible.
//
// # Order of operations
//
// With T tokens of width D, E experts and K choices for each token, N = T·K rows:
//
//	router     scores [T, E] → ids [T, K] (topk), weights [T, K]
//	sort       ids → order, position [N] and counts [E], stable
//	dispatch   rows [N, D] grouped by expert; over several ranks all_to_all of counts,
//	           to_host of the split sizes, all_to_all of rows, expert-major permutation
//	experts    three grouped matrix products over uneven groups
//	return     inverse permutation, all_to_all back
//	combine    out[t] = Σ_k weight[t, k] · row of choice k, in the order of k
//
// Shared experts run while the rows travel. Nothing is padded and no token dropped: an
// expert or a rank without rows still takes part.
//
// # Sources
//
// DeepSeek-V3 (arXiv 2412.19437) §2.1.2 for the router and the node limit; arXiv
// 2408.15664 for balancing without a loss, with torchtitan's zero-mean step.
package moe
