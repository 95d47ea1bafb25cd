package device

// RoutingKernels are the kernels of mixture-of-experts: which experts a token
// goes to, how its copies travel there and back, and the experts' products.
//
// T is tokens, E experts, K experts chosen for each token, N = T·K the rows that
// experts see, D the width of a row. Copy k of token t has the flat index t·K+k.
// Matrices have contiguous rows; int tensors are int32 and contiguous; no rows
// are legal everywhere. Ids and counts lie in device memory and are data: bad
// ones are an error, and what a kernel then leaves in its int outputs can still
// be used as an index.
type RoutingKernels interface {
	// TopK computes ids [T, K] = the columns of the K largest of scores [T, E] +
	// bias [E], largest first, equal ones by column. bias may be the zero Tensor.
	// NaN is smaller than any number; ids are valid and distinct in any case.
	//
	// With groups > 1, columns form that many groups of equal size, at least 2, and
	// only those of the limited best take part: a group counts as the sum of its
	// two largest. (Shazeer et al. 2017, eq. 5; DeepSeek-V3, arXiv 2412.19437,
	// eq. 14–16 with the bias of §2.1.2 and its node-limited routing.)
	TopK(ids, scores, bias Tensor, groups, limited int)

	// GatherColumns computes dst[t, k] = src[t, ids[t, k]]; src [T, E], ids and
	// dst [T, K]. An id outside [0, E) is an error.
	GatherColumns(dst, src, ids Tensor)

	// ScatterColumns is the gradient of GatherColumns: dst [T, E] = 0, then
	// dst[t, ids[t, k]] += src[t, k] in the order of k.
	ScatterColumns(dst, src, ids Tensor)

	// SortByExpert sorts the flat indices of ids [N] by expert, stably, for E =
	// len(counts): order[n] is the flat index at place n, position its inverse, and
	// counts[e] the number of rows of expert e. An id outside [0, E) is an error;
	// the row then counts as expert 0's. (Gale et al. 2022, MegaBlocks, §5.2.)
	SortByExpert(order, position, counts, ids Tensor)

	// GatherRows computes dst[n, :] = src[index[n] / divisor, :] for dst [N, D] of
	// any dtype. With the order of SortByExpert and divisor K it copies tokens to
	// expert order. An index outside [0, rows of src · divisor) is an error.
	GatherRows(dst, src, index Tensor, divisor int)

	// CombineRows computes dst[t, :] = Σ_k weight[t, k] · src[position[t·K+k], :] in
	// the order of k; src [N, D], weight [T, K], or the zero Tensor for 1, when K is
	// len(position) / T. A position outside [0, N) is an error.
	CombineRows(dst, src, position, weight Tensor)

	// CombineRowsBackward computes, for order the inverse of position,
	// dsrc[n, :] = weight.flat[order[n]] · dy[order[n] / K, :] and dweight[t, k] =
	// Σ_d dy[t, d] · src[position[t·K+k], d]. Either output may be the zero Tensor,
	// and then what only it needs as well: position and src, or order and weight.
	CombineRowsBackward(dsrc, dweight, src, position, order, weight, dy Tensor)

	// ExpertMajor is for rows that arrived from R ranks, each rank's sorted by
	// expert: counts [R, E]. order[n] is where row n of the order by expert, then
	// rank, arrived; position is its inverse and totals[e] = Σ_r counts[r, e].
	// Counts that do not add up to len(order) are an error; all rows then count as
	// expert 0's, as they arrived.
	ExpertMajor(order, position, totals, counts Tensor)

	// GroupedMatMul computes dst[n, :] = a[n, :] · b[e] for the rows n of expert e:
	// a [N, k] has the counts[0] rows of expert 0 first, and so on; b [E, k, n] as
	// in MatMul; dst [N, n]. Rows have the bits of a MatMul of their group alone.
	// Counts that do not add up to N are an error.
	GroupedMatMul(dst, a, b, counts Tensor)

	// GroupedMatMulWeight computes dst[e] = Σ a[i, :]ᵀ · b[i, :] over the rows i of
	// expert e, zeros if there are none: a [N, m], b [N, n], dst [E, m, n]. It is
	// the gradient of GroupedMatMul by its b, with the bits of MatMul.
	GroupedMatMulWeight(dst, a, b, counts Tensor)

	// BalanceBias updates bias [E] by the load counts [E] of the experts, in the
	// dtype of bias: with d = step · sign(mean(counts) − counts), bias += d −
	// mean(d). (Wang et al. 2024, arXiv 2408.15664, algorithm 1; the update of zero
	// mean, which keeps the bias from drifting, is torchtitan's.)
	BalanceBias(bias, counts Tensor, step float64)
}
