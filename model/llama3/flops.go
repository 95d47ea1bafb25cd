package llama3

// Parameters is the number of trained numbers, the embedding and the output
// matrix included.
func (c Config) Parameters() int64 {
	n := c.embeddingParameters() + c.layerParameters()*int64(c.Layers) + int64(c.Dim)
	if !c.TieEmbedding {
		n += c.embeddingParameters()
	}
	return n
}

func (c Config) embeddingParameters() int64 { return int64(c.Vocab) * int64(c.Dim) }

func (c Config) layerParameters() int64 {
	dim, head := int64(c.Dim), int64(c.HeadDim)
	projections := 2 * dim * head * int64(c.Heads+c.KVHeads) // wq and wo, wk and wv
	feedForward := 3 * dim * int64(c.Hidden)
	norms := 2 * dim
	if c.QKNorm {
		norms += 2 * head
	}
	return projections + feedForward + norms
}

// FLOPsPerToken is torchtitan's count of the floating-point operations of one
// token's forward and backward pass in a sequence of seq tokens:
//
//	6·(parameters − embedding) + 6·layers·heads·(qk_dim + v_dim)·seq
//
// Each parameter takes part in one multiply-add forward and two backward, and so
// does each of the two products of attention. Masked scores count in full,
// recomputation does not count.
func (c Config) FLOPsPerToken(seq int) float64 {
	matrices := c.Parameters()
	if !c.TieEmbedding { // a tied embedding is a matrix product too, as the output
		matrices -= c.embeddingParameters()
	}
	attention := float64(c.Layers) * float64(c.Heads) * float64(2*c.HeadDim) * float64(seq)
	return 6*float64(matrices) + 6*attention
}
