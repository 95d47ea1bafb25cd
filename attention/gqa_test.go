package attention_test

import (
	"math"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// naive computes GQA from the store's parameters with full scores. position of a
// token is its key index minus its document's start.
type naive struct {
	attention.GQA
	store                *graph.Store
	batch, tokens, width int
	starts               []int32
}

// matmul returns x·wᵀ.
func matmul(x, w []float64, in int) []float64 {
	rows, out := len(x)/in, len(w)/in
	y := make([]float64, rows*out)
	for r := range rows {
		for o := range out {
			for i := range in {
				y[r*out+o] += x[r*in+i] * w[o*in+i]
			}
		}
	}
	return y
}

// norm is RMSNorm of rows.
func (n *naive) norm(x []float64, name string) {
	w := values(n.store, name)
	for r := 0; r < len(x); r += len(w) {
		sum := 0.0
		for i := range w {
			sum += x[r+i] * x[r+i]
		}
		for i := range w {
			x[r+i] *= w[i] / math.Sqrt(sum/float64(len(w))+n.NormEpsilon)
		}
	}
}

func (n *naive) run(x []float64) []float64 {
	q := matmul(x, values(n.store, "wq.weight"), n.width)
	k := matmul(x, values(n.store, "wk.weight"), n.width)
	v := matmul(x, values(n.store, "wv.weight"), n.width)
	n.norm(q, "q_norm.weight")
	n.norm(k, "k_norm.weight")
	position := func(b, t int) int { return t - int(n.starts[b*n.tokens+t]) }
	q = rotateByHand(q, [4]int{n.batch, n.tokens, n.Heads, n.HeadDim}, position, n.RoPE)
	k = rotateByHand(k, [4]int{n.batch, n.tokens, n.KVHeads, n.HeadDim}, position, n.RoPE)
	out := make([]float64, len(q))
	for b := range n.batch {
		for h := range n.Heads {
			for t := range n.tokens {
				n.attend(out, q, k, v, b, h, t)
			}
		}
	}
	return matmul(out, values(n.store, "wo.weight"), n.Heads*n.HeadDim)
}

// attend computes one query of one head.
func (n *naive) attend(out, q, k, v []float64, b, h, t int) {
	query := ((b*n.tokens+t)*n.Heads + h) * n.HeadDim
	keyHead := h / (n.Heads / n.KVHeads)
	var scores []float64
	first, sum := int(n.starts[b*n.tokens+t]), 0.0
	for s := first; s <= t; s++ {
		key, score := ((b*n.tokens+s)*n.KVHeads+keyHead)*n.HeadDim, 0.0
		for i := range n.HeadDim {
			score += q[query+i] * k[key+i]
		}
		scores = append(scores, math.Exp(score/math.Sqrt(float64(n.HeadDim))))
		sum += scores[s-first]
	}
	for s := first; s <= t; s++ {
		value := ((b*n.tokens+s)*n.KVHeads + keyHead) * n.HeadDim
		for i := range n.HeadDim {
			out[query+i] += scores[s-first] / sum * v[value+i]
		}
	}
}

func TestGQAAgainstFullScores(t *testing.T) {
	n := naive{batch: 2, tokens: 5, width: 12, starts: starts}
	n.store = newStore(t)
	b := graph.New(n.store)
	x := b.State("x", device.Float64, graph.Normal{Std: 1}, n.batch, n.tokens, n.width)
	init := graph.Normal{Std: 0.5}
	n.GQA = attention.GQA{
		Heads: 6, KVHeads: 2, HeadDim: 4, QKNorm: true, NormEpsilon: 1e-6,
		RoPE:      attention.RoPE{Theta: 1000, Dims: 4, Layout: device.RotateHalf},
		Positions: b.Input("positions", device.Int32, n.batch, n.tokens),
		Mask: attention.Mask{Causal: true,
			DocumentStart: b.Input("start", device.Int32, n.batch, n.tokens),
			DocumentEnd:   b.Input("end", device.Int32, n.batch, n.tokens)},
		Init: init, OutputInit: init,
	}
	b.Output("y", n.GQA.Build(b, x))
	m := newMachine(t, b)
	positions := make([]int32, len(starts))
	for i, s := range starts {
		positions[i] = int32(i%n.tokens) - s
	}
	check(t, graph.Feed(m, "positions", positions))
	check(t, graph.Feed(m, "start", starts))
	check(t, graph.Feed(m, "end", ends))
	run(t, m)
	near(t, "attention", floats(m, "y"), n.run(values(n.store, "x")))
}

// TestDocumentsDoNotSeeEachOther packs two documents and computes each alone.
func TestDocumentsDoNotSeeEachOther(t *testing.T) {
	store := newStore(t)
	build := func(from, to int, packed bool) []float64 {
		b := graph.New(store)
		tokens := to - from
		x := b.Input("x", device.Float64, 1, tokens, 8)
		c := attention.GQA{Heads: 2, RoPE: attention.RoPE{Theta: 100}, Mask: attention.Mask{Causal: true}}
		if packed {
			c.Positions = b.Input("positions", device.Int32, 1, tokens)
			c.Mask.DocumentStart, c.Mask.DocumentEnd = b.Input("start", device.Int32, 1, tokens), b.Input("end", device.Int32, 1, tokens)
		}
		b.Output("y", c.Build(b.Scope("attention"), x))
		m := newMachine(t, b)
		for i := range device.Elements[float64](m.Input("x")) {
			device.Elements[float64](m.Input("x"))[i] = math.Sin(float64(8*from + i))
		}
		if packed {
			check(t, graph.Feed(m, "positions", []int32{0, 1, 2, 0, 1}))
			check(t, graph.Feed(m, "start", []int32{0, 0, 0, 3, 3}))
			check(t, graph.Feed(m, "end", []int32{3, 3, 3, 5, 5}))
		}
		run(t, m)
		return floats(m, "y")
	}
	near(t, "packed", build(0, 5, true), append(build(0, 3, false), build(3, 5, false)...))
}
