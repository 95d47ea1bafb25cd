package devicetest

import (
	"math"

	"github.com/lethe-go/lethe/device"
)

func attentionTests() []kernelTest {
	return []kernelTest{
		{"Attention", attentionTest},
		{"AttentionBackward", attentionBackwardTest},
	}
}

// attentionCase is one attention with all that its reference computes.
type attentionCase struct {
	batch, queries, keys, heads, keyHeads, width, valueWidth int

	q, k, v    *operand
	start, end []float64 // borders of documents, or nil
	mask       device.Mask
	scale      float64

	out, outScale, lse []float64
}

func newAttentionCase(c *scene) *attentionCase {
	a := &attentionCase{
		batch:   c.extent("batch", 1, 2, 2),
		queries: c.extent("queries", 0, 20, 130), keys: c.extent("keys", 0, 20, 150),
		keyHeads: c.extent("key heads", 1, 3, 2),
		width:    c.extent("width", 1, 20, 24), valueWidth: c.extent("value width", 1, 20, 20),
	}
	a.heads = a.keyHeads * c.extent("group", 1, 3, 2)
	a.q = c.input(lastContiguous, a.batch, a.queries, a.heads, a.width)
	a.k = c.input(lastContiguous, a.batch, a.keys, a.keyHeads, a.width)
	a.v = c.input(lastContiguous, a.batch, a.keys, a.keyHeads, a.valueWidth)
	a.scale = 1 / math.Sqrt(float64(a.width))
	a.drawMask(c)
	return a
}

func (a *attentionCase) drawMask(c *scene) {
	a.mask.Causal = c.flag("causal")
	if c.flag("window") {
		a.mask.Window = c.extent("window size", 1, 10, 37)
	}
	if c.flag("block") {
		a.mask.Block = c.extent("block size", 1, 10, 70)
	}
	a.mask.Offset = c.extent("offset", 0, 5, 20)
	if !c.flag("documents") {
		return
	}
	n := a.batch * a.queries
	a.start, a.end = make([]float64, n), make([]float64, n)
	for i := range n {
		a.start[i] = float64(c.rand.IntN(a.keys + 1))
		a.end[i] = a.start[i] + float64(c.rand.IntN(a.keys+1-int(a.start[i])))
	}
	a.mask.Start = c.inputOf(device.Int32, contiguous, a.start, a.batch, a.queries).Tensor
	a.mask.End = c.inputOf(device.Int32, contiguous, a.end, a.batch, a.queries).Tensor
}

// visible says whether a query sees a key, by the words of [device.Mask].
func (a *attentionCase) visible(batch, query, key int) bool {
	m, p := a.mask, query+a.mask.Offset
	switch {
	case m.Causal && key > p:
		return false
	case m.Window > 0 && p-key > m.Window-1:
		return false
	case m.Block > 0 && p/m.Block != key/m.Block:
		return false
	case a.start == nil:
		return true
	}
	i := batch*a.queries + query
	return float64(key) >= a.start[i] && float64(key) < a.end[i]
}

func at4(t *operand, i, j, k int) []float64 {
	first := ((i*t.Dim(1)+j)*t.Dim(2) + k) * t.Dim(3)
	return t.values[first : first+t.Dim(3)]
}

// probabilities returns the softmax over the keys and its denominator's log.
func (a *attentionCase) probabilities(batch, head, query int) (p []float64, lse float64) {
	scores := make([]float64, a.keys)
	q, keyHead := at4(a.q, batch, query, head), head/(a.heads/a.keyHeads)
	any := false
	for key := range scores {
		scores[key] = math.Inf(-1)
		if a.visible(batch, query, key) {
			any = true
			scores[key] = a.scale * dot(q, at4(a.k, batch, key, keyHead))
		}
	}
	if !any {
		return make([]float64, a.keys), math.Inf(-1)
	}
	lse = logSumExp(scores)
	for key, s := range scores {
		scores[key] = math.Exp(s - lse)
	}
	return scores, lse
}

// forward is the reference of Attention.
func (a *attentionCase) forward() {
	a.out = make([]float64, a.batch*a.queries*a.heads*a.valueWidth)
	a.outScale = make([]float64, len(a.out))
	a.lse = make([]float64, a.batch*a.heads*a.queries)
	for b := range a.batch {
		for h := range a.heads {
			for t := range a.queries {
				p, lse := a.probabilities(b, h, t)
				a.lse[(b*a.heads+h)*a.queries+t] = lse
				for key, p := range p {
					for j, v := range at4(a.v, b, key, h/(a.heads/a.keyHeads)) {
						at := ((b*a.queries+t)*a.heads+h)*a.valueWidth + j
						a.out[at] += p * v
						a.outScale[at] += p * math.Abs(v)
					}
				}
			}
		}
	}
}

func attentionTest(c *scene) (func(device.Kernels), func()) {
	a := newAttentionCase(c)
	out := c.output(lastContiguous, a.batch, a.queries, a.heads, a.valueWidth)
	lse := c.output(contiguous, a.batch, a.heads, a.queries)
	return func(k device.Kernels) {
			k.Attention(out.Tensor, lse.Tensor, a.q.Tensor, a.k.Tensor, a.v.Tensor, a.mask, a.scale)
		},
		func() {
			a.forward()
			scale := make([]float64, len(a.lse))
			for i, l := range a.lse {
				if scale[i] = 1 + math.Abs(l); math.IsInf(l, -1) {
					scale[i] = 0
				}
			}
			c.close(lse, a.lse, scale, 16)
			c.close(out, a.out, a.outScale, 64)
		}
}

func attentionBackwardTest(c *scene) (func(device.Kernels), func()) {
	a := newAttentionCase(c)
	a.forward()
	out := c.inputOf(c.dtype, lastContiguous, a.out, a.batch, a.queries, a.heads, a.valueWidth)
	lse := c.inputOf(c.dtype, contiguous, a.lse, a.batch, a.heads, a.queries)
	dout := c.input(lastContiguous, out.Shape()...)
	dq := c.output(lastContiguous, a.q.Shape()...)
	dk := c.output(lastContiguous, a.k.Shape()...)
	dv := c.output(lastContiguous, a.v.Shape()...)
	ws := c.outputOf(device.Uint8, contiguous, 2*device.Alignment+int(device.AttentionWorkspace(c.dtype, a.batch, a.heads, a.queries)))
	wsTensor := aligned(ws.Tensor)
	return func(k device.Kernels) {
			k.AttentionBackward(dq.Tensor, dk.Tensor, dv.Tensor, a.q.Tensor, a.k.Tensor, a.v.Tensor,
				out.Tensor, lse.Tensor, dout.Tensor, a.mask, a.scale, wsTensor)
		},
		func() {
			wantQ, wantK, wantV := a.backward(dout)
			// Terms cancel: the scale is that of the whole tensor.
			c.close(dq, wantQ, peaks(wantQ), 128)
			c.close(dk, wantK, peaks(wantK), 128)
			c.close(dv, wantV, peaks(wantV), 128)
		}
}

// peaks is the largest magnitude, at least 1, for each element.
func peaks(x []float64) []float64 {
	peak := 1.0
	for _, v := range x {
		peak = max(peak, math.Abs(v))
	}
	p := make([]float64, len(x))
	for i := range p {
		p[i] = peak
	}
	return p
}

// backward is the reference of AttentionBackward: for probabilities P and
// dP = dout·vᵀ, dS = P·(dP − Σ P·dP).
func (a *attentionCase) backward(dout *operand) (dq, dk, dv []float64) {
	gradient := func(o *operand) *operand {
		return &operand{Tensor: o.Tensor, values: make([]float64, o.Len())}
	}
	gq, gk, gv := gradient(a.q), gradient(a.k), gradient(a.v)
	for b := range a.batch {
		for h := range a.heads {
			keyHead := h / (a.heads / a.keyHeads)
			for t := range a.queries {
				p, _ := a.probabilities(b, h, t)
				do, dp := at4(dout, b, t, h), make([]float64, a.keys)
				for key := range dp {
					dp[key] = dot(do, at4(a.v, b, key, keyHead))
				}
				mean := dot(p, dp)
				for key := range p {
					ds := a.scale * p[key] * (dp[key] - mean)
					axpy(at4(gq, b, t, h), ds, at4(a.k, b, key, keyHead))
					axpy(at4(gk, b, key, keyHead), ds, at4(a.q, b, t, h))
					axpy(at4(gv, b, key, keyHead), p[key], do)
				}
			}
		}
	}
	return gq.values, gk.values, gv.values
}

func axpy(y []float64, alpha float64, x []float64) {
	for i, v := range x {
		y[i] += alpha * v
	}
}
