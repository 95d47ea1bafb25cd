package deepseekv3

import (
	"math"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
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

// Options of a build; the zero value works.
type Options struct {
	// Layer is the policy of each layer; nil saves everything.
	Layer checkpoint.Policy
	// Attention and MoE, if not nil, put these parts of a layer into regions of their
	// own inside the layer's.
	Attention, MoE checkpoint.Policy
	// Dispatcher of tokens to experts; nil keeps all experts on this rank.
	Dispatcher moe.Dispatcher
	// Training counts the load of experts. Leave it out to evaluate.
	Training bool
}

// Build adds the model and its loss to b, "cross_entropy" or, from in.Loss, "loss",
// and returns the loss.
// Mistakes make b fail. A program for evaluation is built by the same call without
// Backward and Training.
func Build(b *graph.Builder, c Config, in Inputs, o Options) graph.Value {
	x := c.hidden(b, in, o)
	if in.Loss != nil {
		loss := in.Loss(b.Scope("loss"), nn.OutputLogits(b.Scope("output"), x, c.output()))
		b.AddLoss("loss", loss)
		return loss
	}
	loss := nn.OutputLoss(b.Scope("output"), x, in.Labels, in.Scale, c.output())
	b.AddLoss("cross_entropy", loss)
	return loss
}

// Logits adds the model without its loss to b and returns what it predicts to follow
// one token of each sequence, [B, Vocab]: that in column row, an int32 scalar on the
// host. Labels and Scale are not used.
func Logits(b *graph.Builder, c Config, in Inputs, row graph.Value) graph.Value {
	if c.ForceBalance {
		return b.Fail("deepseekv3: ForceBalance routes a token by its column, which differs from run to run: it is for training alone")
	}
	x := nn.RowAt(c.hidden(b, in, Options{}), row)
	return nn.OutputLogits(b.Scope("output"), x, c.output())
}

// hidden is what the output layer reads: [B, T, Dim].
func (c *Config) hidden(b *graph.Builder, in Inputs, o Options) graph.Value {
	if err := c.Validate(); err != nil {
		return b.Fail("%v", err)
	}
	if c.DType == device.Invalid {
		c.DType = device.Float32
	}
	if o.Layer == nil {
		o.Layer = checkpoint.None()
	}
	mask := attention.CausalDocuments(b, in.Tokens, in.DocumentStart)
	x := nn.Embedding(b.Scope("tok_embeddings"), in.Tokens, nn.EmbeddingConfig{Vocab: c.Vocab, Dim: c.Dim, DType: c.DType})
	for l := range c.Layers {
		b := b.Scope("layers", l)
		checkpoint.Region(b, o.Layer, func() { x = c.layer(b, l, x, in, mask, o) })
	}
	return nn.RMSNorm(b.Scope("norm"), x, c.NormEps)
}

// output is the configuration of the last layer.
func (c *Config) output() nn.OutputLossConfig {
	std := 1 / math.Sqrt(float64(c.Dim))
	return nn.OutputLossConfig{Vocab: c.Vocab, Init: graph.TruncatedNormal{Std: std, Low: -3 * std, High: 3 * std}}
}

// layer returns x [B, T, Dim] behind one transformer block.
func (c *Config) layer(b *graph.Builder, l int, x graph.Value, in Inputs, mask attention.Mask, o Options) graph.Value {
	h := nn.RMSNorm(b.Scope("attention_norm"), x, c.NormEps)
	inside(b.Scope("attention"), o.Attention, func(b *graph.Builder) { h = c.attention(l, in, mask).Build(b, h) })
	x = nn.Add(x, h)
	h = nn.RMSNorm(b.Scope("ffn_norm"), x, c.NormEps)
	if l < c.DenseLayers {
		h = nn.FeedForward{Hidden: c.Hidden, Init: truncatedNormal(0.02), OutputInit: deep(l)}.Build(b.Scope("feed_forward"), h)
	} else {
		inside(b.Scope("moe"), o.MoE, func(b *graph.Builder) { h = c.mixture(l, o).Build(b, h) })
	}
	return nn.Add(x, h)
}

// inside builds a part of a layer, in a region of its own if it has a policy.
func inside(b *graph.Builder, policy checkpoint.Policy, build func(b *graph.Builder)) {
	if policy == nil {
		build(b)
		return
	}
	checkpoint.Region(b, policy, func() { build(b) })
}

func (c *Config) attention(l int, in Inputs, mask attention.Mask) attention.MLA {
	return attention.MLA{
		Heads: c.Heads, QLoRA: c.QLoRA, KVLoRA: c.KVLoRA, NoPEDims: c.NoPEDims, RoPEDims: c.RoPEDims, ValueDim: c.ValueDim,
		NormEpsilon: c.NormEps, RoPE: c.RoPE, MScale: c.MScale, Positions: in.Positions, Mask: mask, Cache: in.Cache,
		Init: truncatedNormal(0.02), OutputInit: deep(l),
	}
}

func (c *Config) mixture(l int, o Options) moe.Layer {
	return moe.Layer{
		Router: moe.Router{
			Experts: c.Experts, TopK: c.TopK, Score: c.Score, Normalize: c.RouteNorm, Scale: c.RouteScale,
			Groups: c.Groups, LimitedGroups: c.LimitedGroups, Bias: c.LoadBalance > 0, ForceBalance: c.ForceBalance, Init: deep(l),
		},
		Hidden: c.ExpertHidden, Shared: c.SharedExperts, Dispatcher: o.Dispatcher, Count: o.Training,
		Init: truncatedNormal(0.02), OutputInit: deep(l),
	}
}

// deep is the initial value of what writes to the residual stream: smaller in deeper
// layers, so that the stream's variance does not grow with depth.
func deep(l int) graph.Initializer { return truncatedNormal(0.02 / math.Sqrt(2*float64(l+1))) }

// truncatedNormal is torchtitan's: cut at ±2 itself, not at two deviations.
func truncatedNormal(std float64) graph.Initializer {
	return graph.TruncatedNormal{Std: std, Low: -2, High: 2}
}
