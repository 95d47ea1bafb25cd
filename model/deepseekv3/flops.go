package deepseekv3

// Parameters is the number of trained numbers, the embedding and the output matrix
// included.
func (c Config) Parameters() int64 {
	embedding := int64(c.Vocab) * int64(c.Dim)
	return 2*embedding + c.denseParameters() + c.moeLayers()*(c.router()+c.shared()+c.expert()*int64(c.Experts))
}

// ActiveParameters is the number of trained numbers that one token meets: of the
// routed experts only TopK.
func (c Config) ActiveParameters() int64 {
	return c.Parameters() - c.moeLayers()*c.expert()*int64(c.Experts-c.TopK)
}

// FLOPsPerToken is torchtitan's count of the floating-point operations of one token's
// forward and backward pass in a sequence of seq tokens:
//
//	6·(dense − embedding + router + shared + experts·K/E) + 6·layers·heads·(qk_dim + v_dim)·seq
//
// Masked scores count in full, recomputation does not count.
func (c Config) FLOPsPerToken(seq int) float64 {
	matrices := c.ActiveParameters() - int64(c.Vocab)*int64(c.Dim)
	attention := float64(c.Layers) * float64(c.Heads) * float64(c.NoPEDims+c.RoPEDims+c.ValueDim) * float64(seq)
	return 6*float64(matrices) + 6*attention
}

func (c Config) moeLayers() int64 { return int64(c.Layers - c.DenseLayers) }
func (c Config) router() int64    { return int64(c.Experts) * int64(c.Dim) }
func (c Config) expert() int64    { return 3 * int64(c.Dim) * int64(c.ExpertHidden) }
func (c Config) shared() int64    { return c.expert() * int64(c.SharedExperts) }

// denseParameters are those outside of embedding, output matrix and mixtures.
func (c Config) denseParameters() int64 {
	dim, heads := int64(c.Dim), int64(c.Heads)
	width := heads * int64(c.NoPEDims+c.RoPEDims)
	queries := dim * width
	if q := int64(c.QLoRA); q > 0 {
		queries = dim*q + q + q*width
	}
	kv := int64(c.KVLoRA)
	keys := dim*(kv+int64(c.RoPEDims)) + kv + kv*heads*int64(c.NoPEDims+c.ValueDim)
	layer := queries + keys + heads*int64(c.ValueDim)*dim + 2*dim
	return int64(c.Layers)*layer + int64(c.DenseLayers)*3*dim*int64(c.Hidden) + dim
}
