package llama3

import (
	"math"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// Inputs of a model for B sequences of T tokens.
type Inputs struct {
	// Tokens and Labels are ids, int32 [B, T]. The label nn.DefaultIgnore counts
	// nothing.
	Tokens, Labels graph.Value
	// Positions of the tokens in their documents, int32 [B, T]; graph.None means 0
	// to T−1.
	Positions graph.Value
	// DocumentStart is the column of the first token of each token's document,
	// int32 [B, T]; graph.None makes every sequence one document.
	DocumentStart graph.Value
	// Scale, a scalar of the model's dtype, multiplies the sum of cross-entropies:
	// one over the labels of the whole optimizer step.
	Scale graph.Value
	// Loss, if not nil, takes the place of the cross-entropy: it makes a scalar of the
	// logits [B, T, Vocab].
	Loss func(b *graph.Builder, logits graph.Value) graph.Value
	// Cache, if not nil, holds the tokens that stand before these; for [Logits].
	Cache *attention.Cache
}

// Build adds the model and its loss to b, "cross_entropy" or, from in.Loss, "loss",
// and returns the loss.
// Each layer is one checkpoint region with the policy that policy gives for it; a
// nil policy saves everything. Mistakes make b fail.
//
// A program for evaluation is built by the same call without Backward, with a
// Dropout of 0.
func Build(b *graph.Builder, c Config, in Inputs, policy func(layer int) checkpoint.Policy) graph.Value {
	x := c.hidden(b, in, policy)
	if in.Loss != nil {
		loss := in.Loss(b.Scope("loss"), nn.OutputLogits(b.Scope("output"), x, c.output(b)))
		b.AddLoss("loss", loss)
		return loss
	}
	loss := nn.OutputLoss(b.Scope("output"), x, in.Labels, in.Scale, c.output(b))
	b.AddLoss("cross_entropy", loss)
	return loss
}

// Logits adds the model without its loss to b and returns what it predicts to follow
// one token of each sequence, [B, Vocab]: that in column row, an int32 scalar on the
// host. Labels and Scale are not used, and there is no dropout.
func Logits(b *graph.Builder, c Config, in Inputs, row graph.Value) graph.Value {
	c.Dropout = 0
	x := nn.RowAt(c.hidden(b, in, nil), row)
	return nn.OutputLogits(b.Scope("output"), x, c.output(b))
}

// hidden is what the output layer reads: [B, T, Dim].
func (c *Config) hidden(b *graph.Builder, in Inputs, policy func(layer int) checkpoint.Policy) graph.Value {
	if err := c.Validate(); err != nil {
		return b.Fail("%v", err)
	}
	if c.DType == device.Invalid {
		c.DType = device.Float32
	}
	if policy == nil {
		policy = func(int) checkpoint.Policy { return checkpoint.None() }
	}
	mask := attention.CausalDocuments(b, in.Tokens, in.DocumentStart)
	x := nn.Embedding(b.Scope("tok_embeddings"), in.Tokens, nn.EmbeddingConfig{Vocab: c.Vocab, Dim: c.Dim, DType: c.DType})
	for l := range c.Layers {
		b := b.Scope("layers", l)
		checkpoint.Region(b, policy(l), func() { x = c.layer(b, l, x, in, mask) })
	}
	return nn.RMSNorm(b.Scope("norm"), x, c.NormEps)
}

// layer returns x [B, T, Dim] behind one transformer block.
func (c *Config) layer(b *graph.Builder, l int, x graph.Value, in Inputs, mask attention.Mask) graph.Value {
	// What writes to the residual stream begins smaller in deeper layers, so that
	// the stream's variance does not grow with depth.
	deep := truncatedNormal(0.02 / math.Sqrt(2*float64(l+1)))
	block := attention.GQA{
		Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, QKNorm: c.QKNorm, NormEpsilon: c.NormEps,
		RoPE: c.RoPE, Positions: in.Positions, Mask: mask, Cache: in.Cache, Init: truncatedNormal(0.02), OutputInit: deep,
	}
	forward := nn.FeedForward{Hidden: c.Hidden, Init: truncatedNormal(0.02), OutputInit: deep}

	h := block.Build(b.Scope("attention"), nn.RMSNorm(b.Scope("attention_norm"), x, c.NormEps))
	x = nn.Add(x, nn.Dropout(b.Scope("attention"), h, c.Dropout))
	h = forward.Build(b.Scope("feed_forward"), nn.RMSNorm(b.Scope("ffn_norm"), x, c.NormEps))
	return nn.Add(x, nn.Dropout(b.Scope("feed_forward"), h, c.Dropout))
}

// truncatedNormal is torchtitan's: cut at ±2 itself, not at two deviations.
func truncatedNormal(std float64) graph.Initializer {
	return graph.TruncatedNormal{Std: std, Low: -2, High: 2}
}

// output is the configuration of the last layer: its own matrix, cut at three
// deviations, or the embedding's.
func (c Config) output(b *graph.Builder) nn.OutputLossConfig {
	if c.TieEmbedding {
		// The Store knows the embedding by its name: this is the same parameter.
		table := b.Scope("tok_embeddings").Parameter("weight", c.DType, graph.Normal{Std: 1}, c.Vocab, c.Dim)
		return nn.OutputLossConfig{Weight: table}
	}
	std := 1 / math.Sqrt(float64(c.Dim))
	return nn.OutputLossConfig{Vocab: c.Vocab, Init: graph.TruncatedNormal{Std: std, Low: -3 * std, High: 3 * std}}
}
