package device

// Kernels is the waist: all that an operation can ask of a device.
//
// Unless a method says otherwise, float arguments of one call share a dtype
// (float32 or float64), outputs do not overlap inputs except that an output may
// be the very same view as an input of an elementwise kernel, and all outputs
// are overwritten. Methods enqueue; they return nothing and allocate nothing.
// Shapes are checked when the graph is built: a kernel given impossible shapes
// panics with a constant message. Bad data (an id outside its table) is reported
// by [Queue.Sync]; that kernel's outputs are then undefined.
//
// "rows" below is the product of all dimensions but the last. Kernels over the
// last dimension want its stride to be 1, and leave the others free, unless they
// say contiguous; vectors and scalars are contiguous.
type Kernels interface {
	RoutingKernels

	// Fill sets every element of dst, of any dtype and strides, to value.
	Fill(dst Tensor, value float64)

	// Copy copies src to dst: equal shapes, any strides, and any dtypes, which
	// are converted once (floats round to nearest even; int to float and float64 to
	// float32 likewise). Floats become integers by dropping the fraction, within
	// the range of the integer and with 0 for NaN; integers wrap around.
	Copy(dst, src Tensor)

	// Unary computes dst = f(x) elementwise; any equal shapes and strides.
	Unary(f UnaryFunc, dst, x Tensor)

	// Binary computes dst = f(a, b) elementwise. Use [Tensor.Broadcast] to give
	// a and b the shape of dst.
	Binary(f BinaryFunc, dst, a, b Tensor)

	// AddScaled computes dst = a + alpha·b elementwise.
	AddScaled(dst, a, b Tensor, alpha float64)

	// Lerp computes dst = a + weight·(b − a) elementwise, in float64 before it is
	// rounded.
	Lerp(dst, a, b Tensor, weight float64)

	// Sum reduces src to dst: same rank, every dimension of dst is either that
	// of src or 1, and dimensions of 1 are summed over. Partial sums are float64.
	Sum(dst, src Tensor)

	// SumSquares computes the scalar dst (float64) = Σ x²; x contiguous.
	SumSquares(dst, x Tensor)

	// CountNonFinite adds to the scalar dst (int32) the number of NaN and ±Inf in x.
	CountNonFinite(dst, x Tensor)

	// MatMul computes dst[..., m, n] = Σ_k a[..., m, k]·b[..., k, n], plus the old
	// dst when accumulate is set. Rank 2 or 3; in rank 3 the first dimension is a
	// batch (stride 0 repeats). Of the last two strides of a and of b at least
	// one is 1, so a transposed view is a transposed operand; dst's last is 1.
	// k = 0 gives zeros.
	MatMul(dst, a, b Tensor, accumulate bool)

	// RMSNorm computes dst = x / sqrt(mean(x²) + eps) · weight over the last
	// dimension; weight [D]. (Zhang, Sennrich 2019, eq. 4.)
	RMSNorm(dst, x, weight Tensor, eps float64)

	// RMSNormBackward computes dx and dweight [D]. Either may be the zero Tensor.
	// ws has [RMSNormWorkspace] bytes.
	RMSNormBackward(dx, dweight, x, weight, dy Tensor, eps float64, ws Tensor)

	// SwiGLU computes dst = silu(gate) · up. (Shazeer 2020.)
	SwiGLU(dst, gate, up Tensor)

	// SwiGLUBackward computes dgate and dup.
	SwiGLUBackward(dgate, dup, gate, up, dy Tensor)

	// Softmax computes dst = softmax(x) over the last dimension.
	Softmax(dst, x Tensor)

	// SoftmaxBackward computes dx = y · (dy − Σ dy·y) over the last dimension.
	SoftmaxBackward(dx, y, dy Tensor)

	// RoPE rotates pairs of the last dimension of x [batch, T, heads, D] by the
	// angles of the row positions[batch, T] (int32) of cos and sin [P, R/2], for
	// the first R ≤ D elements; the rest is copied. inverse rotates back, which
	// is the gradient. A position outside [0, P) is an error. (Su et al. 2021.)
	RoPE(dst, x, cos, sin, positions Tensor, layout RoPELayout, inverse bool)

	// Embedding computes dst[i, :] = table[ids[i], :]; table [V, D], ids int32 of
	// any shape, dst that shape plus D. Ids whose rows are in another part of the table
	// give zeros; one that is in none, outside [0, V) of the whole, is an error.
	Embedding(dst, table, ids Tensor, part Part)

	// EmbeddingBackward computes dtable[v, :] = Σ_{i: ids[i]=v} dy[i, :], summed in
	// the order of i, for the rows of a part.
	EmbeddingBackward(dtable, ids, dy Tensor, part Part)

	// Attention computes out = softmax(scale · q·kᵀ + mask) · v without ever
	// holding the scores, and lse, the log of each softmax's denominator (natural,
	// float32 or wider), [batch, H, T] contiguous.
	//
	// q [batch, T, H, Dqk], k [batch, S, Hkv, Dqk], v [batch, S, Hkv, Dv], out
	// [batch, T, H, Dv]; last strides 1, others free; H a multiple of Hkv, and
	// query head h reads key head h / (H / Hkv). A query that may see no key
	// gives zeros and lse = −Inf. (Dao 2023, FlashAttention-2, algorithm 1.)
	Attention(out, lse, q, k, v Tensor, mask Mask, scale float64)

	// AttentionBackward computes dq, dk and dv (overwritten) from what Attention
	// read and wrote. ws has [AttentionWorkspace] bytes. (Algorithm 2.)
	AttentionBackward(dq, dk, dv, q, k, v, out, lse, dout Tensor, mask Mask, scale float64, ws Tensor)

	// CrossEntropy computes loss[i] = logsumexp(logits[i]) − logits[i, labels[i]]
	// for logits [rows, V], contiguous, and labels int32 [rows]; the loss of a
	// label equal to ignore is 0. With grad it also overwrites logits by its gradient,
	// softmax(logits[i]) − onehot(labels[i]), 0 for ignored rows. Another label
	// outside [0, V) is an error.
	CrossEntropy(loss, logits, labels Tensor, ignore int32, grad bool)

	// LogSumExp computes dst[i] = log Σ exp(x[i]) for x [rows, n]: −Inf if n is 0.
	LogSumExp(dst, x Tensor)

	// CrossEntropyPart is CrossEntropy for a part of the columns of logits, whose rows may
	// lie apart and whose logsumexp over all columns is lse [rows]. The loss of a row is that of CrossEntropy
	// where the column of its label is in the part and 0 elsewhere, so that the losses
	// of all parts add up to it.
	CrossEntropyPart(loss, logits, labels, lse Tensor, part Part, ignore int32, grad bool)

	// Dropout computes dst = x / (1−p) where the draw of the element is ≥ p and 0
	// elsewhere. The same draw in backward gives the gradient.
	Dropout(dst, x Tensor, p float64, draw Draw)

	// Random fills dst (float32 or float64) with numbers of d.
	Random(dst Tensor, d Distribution, draw Draw)

	// ClipFactor computes the scalar dst = min(1, max / (norm + 1e-6)).
	ClipFactor(dst, norm Tensor, max float64)

	// AdamW updates param, m and v in place with g = factor · grad + l2 · param,
	// where factor is a scalar tensor (or the zero Tensor for 1):
	//
	//	param ← param · (1 − lr·decay)
	//	m ← β1·m + (1−β1)·g;  v ← β2·v + (1−β2)·g²
	//	param ← param − lr · (m / (1−β1ᵗ)) / (sqrt(v / (1−β2ᵗ)) + eps)
	//
	// (Loshchilov, Hutter 2019, algorithm 2, with the decay of PyTorch; with l2 in
	// place of decay it is the Adam of Kingma, Ba 2015.)
	AdamW(param, m, v, grad, factor Tensor, a AdamW)

	// SGD updates param and momentum in place with g = factor · grad + l2 · param,
	// where factor is a scalar tensor (or the zero Tensor for 1):
	//
	//	momentum ← μ·momentum + g
	//	param ← param − lr · momentum, or lr · (g + μ·momentum) with Nesterov
	//
	// The zero Tensor for momentum stands for μ = 0: param ← param − lr·g.
	// (Sutskever et al. 2013, as PyTorch writes it.)
	SGD(param, momentum, grad, factor Tensor, s SGD)

	// Call runs Go code on the tensors, in order with the other kernels: it may
	// read in and write out and nothing else. This is how an operation that no
	// kernel can express is added. Where the host cannot reach device memory it is
	// an error.
	Call(f Function, out, in []Tensor)
}

// Part says that a tensor holds rows of a table, or columns of a matrix, from First on of
// Whole. The zero Part is the whole.
type Part struct{ First, Whole int }

// Of is the number that the whole has, where a tensor has n.
func (p Part) Of(n int) int {
	if p.Whole == 0 {
		return n
	}
	return p.Whole
}

// Function is Go code that runs as a kernel.
type Function interface {
	Call(out, in []Tensor) error
}

// UnaryFunc names a function of one float argument.
type UnaryFunc uint8

const (
	Neg UnaryFunc = iota
	Exp
	Log
	Sqrt
	Square
	Inverse
	Sigmoid
	Tanh
)

// BinaryFunc names a function of two float arguments.
type BinaryFunc uint8

const (
	Add BinaryFunc = iota
	Sub
	Mul
	Div
	Maximum
)

// RoPELayout says which elements of a head form a pair.
type RoPELayout uint8

const (
	// AdjacentPairs rotates (x[2i], x[2i+1]): the complex form of Llama and DeepSeek.
	AdjacentPairs RoPELayout = iota
	// RotateHalf rotates (x[i], x[i+R/2]): the layout of Hugging Face checkpoints.
	RotateHalf
)

// Mask says which keys a query may see: for every query one interval of keys,
// the intersection of all that is set. Query t of T stands at key position
// t + Offset.
type Mask struct {
	// Causal hides keys after the query.
	Causal bool
	// Window, if positive, hides keys further back than Window−1: the window
	// includes the query itself.
	Window int
	// Block, if positive, hides keys outside the query's own block of that size.
	Block int
	// Start and End (int32 [batch, T], or the zero Tensor) give for each query
	// the first key it may see and one past the last: the borders of its document.
	Start, End Tensor
	// Offset is the key position of query 0, for decoding behind a cache.
	Offset int
}

// Draw identifies random numbers: the same Draw gives the same numbers on every
// device, in every rerun and every rank layout. Element (i0, i1, …) of a tensor
// takes the number at Σ (i_d + Offset_d)·Stride_d, its index in the unsharded
// tensor; see package philox.
type Draw struct {
	Key            uint64 // hash of seed, fully qualified name and call index
	Step           uint32
	Microbatch     uint32
	Offset, Stride [MaxRank]int
}

// WholeDraw is the Draw of a tensor that is not sharded.
func WholeDraw(key uint64, shape ...int) Draw {
	d := Draw{Key: key}
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		d.Stride[i] = n
		n *= shape[i]
	}
	return d
}

// DistributionKind names a family of random numbers.
type DistributionKind uint8

const (
	// Uniform on [Low, High), before rounding, which may give High.
	Uniform DistributionKind = iota
	// Normal with Mean and Std.
	Normal
	// TruncatedNormal is Normal, redrawn by inversion to lie in [Low, High]: Low
	// and High are values, not deviations from Mean.
	TruncatedNormal
)

// Distribution of random numbers. Numbers are computed in float64 from one
// 64-bit draw an element and rounded to the tensor's dtype.
type Distribution struct {
	Kind      DistributionKind
	Mean, Std float64
	Low, High float64
}

// AdamW holds the scalars of one update.
type AdamW struct {
	LearningRate, Beta1, Beta2, Epsilon float64
	// WeightDecay shrinks the parameter, L2 adds to its gradient.
	WeightDecay, L2 float64
	// Step t counts from 1.
	Step int
}

// SGD holds the scalars of one update.
type SGD struct {
	LearningRate, Momentum, L2 float64
	Nesterov                   bool
}

// rowsPerPartial is how many rows one partial sum of a weight gradient covers.
const rowsPerPartial = 64

// RMSNormPartials is the number of partial sums of dweight for a number of
// rows: it depends on nothing else, so that sums keep their order.
func RMSNormPartials(rows int) int { return min((rows+rowsPerPartial-1)/rowsPerPartial, 64) }

// RMSNormWorkspace is the size in bytes of ws in [Kernels.RMSNormBackward]:
// partials of dweight in the dtype.
func RMSNormWorkspace(d DType, rows, width int) int64 {
	return int64(RMSNormPartials(rows)) * int64(width) * int64(d.Size())
}

// AttentionWorkspace is the size in bytes of ws in [Kernels.AttentionBackward]:
// Σ dout·out for each query, [batch, heads, T] in lse's dtype.
func AttentionWorkspace(lse DType, batch, heads, queries int) int64 {
	return int64(batch) * int64(heads) * int64(queries) * int64(lse.Size())
}
