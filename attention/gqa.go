package attention

import (
	"fmt"

	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// GQA is grouped-query attention: Heads query heads share KVHeads key and value
// heads. (Ainslie et al. 2023.) KVHeads = Heads is multi-head attention, KVHeads = 1
// multi-query attention.
//
// Parameters have torchtitan's names: wq.weight [Heads·HeadDim, D], wk.weight and
// wv.weight [KVHeads·HeadDim, D], wo.weight [D, Heads·HeadDim], and with QKNorm
// q_norm.weight and k_norm.weight [HeadDim]. Ranks may share the heads: a Store's Layout gives
// each rank some rows of the first three and the same columns of wo.
type GQA struct {
	Heads   int
	KVHeads int // 0 means Heads
	HeadDim int // 0 means D / Heads
	// QKNorm normalizes each head's queries and keys before they are rotated, as
	// Qwen 3 does, with NormEpsilon (0 means nn.DefaultEpsilon).
	QKNorm      bool
	NormEpsilon float64

	RoPE RoPE
	// Positions of tokens, int32 [B, T]; graph.None means 0 to T−1 in every sequence.
	Positions graph.Value
	Mask      Mask
	// Cache, if not nil, holds the rotated keys and the values of earlier tokens.
	Cache *Cache

	// Init of wq, wk and wv, and OutputInit of wo, which torchtitan scales down with
	// depth; nil is that of nn.Linear.
	Init, OutputInit graph.Initializer
}

// Build returns the attention of x [B, T, D] to itself: [B, T, D].
func (c GQA) Build(b *graph.Builder, x graph.Value) graph.Value {
	if b.Err() != nil || x.Node() == nil {
		return b.Fail("gqa: the input is absent (graph.None) or of a graph that failed")
	}
	x = b.Enter(x)
	if err := c.complete(x); err != nil {
		return b.Fail("gqa: %v", err)
	}
	q := c.project(b, "q", x, c.Heads, c.QKNorm)
	k := c.project(b, "k", x, c.KVHeads, c.QKNorm)
	v := c.project(b, "v", x, c.KVHeads, false)
	q, k = c.RoPE.Rotate(b, q, c.Positions), c.RoPE.Rotate(b, k, c.Positions)
	out := c.attend(b, q, k, v)
	out = graph.Reshape(out, x.Dim(0), x.Dim(1), out.Dim(2)*c.HeadDim)
	return b.Leave(nn.LinearFrom(b.Scope("wo"), out, c.Heads*c.HeadDim, x.Dim(2), c.OutputInit))
}

func (c *GQA) attend(b *graph.Builder, q, k, v graph.Value) graph.Value {
	if c.Cache == nil {
		return Fused(b, q, k, v, c.Mask, 0)
	}
	k, v = c.Cache.append(b, "keys", k), c.Cache.append(b, "values", v)
	return c.Cache.attend(b, q, k, v, c.HeadDim, c.Mask, 0)
}

// complete fills in what was left at zero and says what is impossible.
func (c *GQA) complete(x graph.Value) error {
	if len(x.Shape()) != 3 {
		return fmt.Errorf("want x [batch, tokens, width], have %v", x.Spec())
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	switch dim := x.Dim(2); {
	case c.Heads <= 0 || c.KVHeads <= 0 || c.HeadDim < 0:
		return fmt.Errorf("%d heads, %d key heads of width %d: set Heads to 1 or more", c.Heads, c.KVHeads, c.HeadDim)
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%d heads cannot share %d key heads: want Heads to be a multiple of KVHeads", c.Heads, c.KVHeads)
	case c.HeadDim == 0 && dim%c.Heads != 0:
		return fmt.Errorf("width %d does not divide into %d heads: choose another number of heads, or set HeadDim", dim, c.Heads)
	case c.HeadDim == 0:
		c.HeadDim = dim / c.Heads
	}
	if err := c.Cache.check(x.Dim(1), c.Positions, c.Mask); err != nil {
		return err
	}
	c.RoPE = c.Cache.rope(c.RoPE)
	return c.Mask.check(x.Dim(0), x.Dim(1))
}

// project returns one of the queries, keys and values: [B, T, heads, HeadDim], of which this
// rank may have a part of the heads.
func (c *GQA) project(b *graph.Builder, letter string, x graph.Value, heads int, norm bool) graph.Value {
	y := nn.Linear(b.Scope("w"+letter), x, heads*c.HeadDim, c.Init)
	y = splitHeads(y, c.HeadDim)
	if norm {
		y = nn.RMSNorm(b.Scope(letter+"_norm"), y, c.NormEpsilon)
	}
	return y
}
