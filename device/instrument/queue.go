package instrument

import "github.com/lethe-go/lethe/device"

// queue records what each kernel reads and writes, then runs it. It embeds
// nothing, so that a new kernel cannot slip past the instrument.
type queue struct {
	to     device.Queue
	device *Device
	tick   int // of the asynchronous step being run, −1 if the device's clock counts
}

// Tick says that the kernels that follow belong to the asynchronous step n.
func (r *queue) Tick(n int) { r.tick = n }

func (r *queue) Sync() error  { return r.to.Sync() }
func (r *queue) Close() error { return r.to.Close() }

func (r *queue) reads(t ...device.Tensor)  { r.device.touch(r.tick, t, false) }
func (r *queue) writes(t ...device.Tensor) { r.device.touch(r.tick, t, true) }

func (r *queue) Fill(dst device.Tensor, value float64) {
	r.writes(dst)
	r.to.Fill(dst, value)
}

func (r *queue) Copy(dst, src device.Tensor) {
	r.reads(src)
	r.writes(dst)
	r.to.Copy(dst, src)
}

func (r *queue) Unary(f device.UnaryFunc, dst, x device.Tensor) {
	r.reads(x)
	r.writes(dst)
	r.to.Unary(f, dst, x)
}

func (r *queue) Binary(f device.BinaryFunc, dst, a, b device.Tensor) {
	r.reads(a, b)
	r.writes(dst)
	r.to.Binary(f, dst, a, b)
}

func (r *queue) AddScaled(dst, a, b device.Tensor, alpha float64) {
	r.reads(a, b)
	r.writes(dst)
	r.to.AddScaled(dst, a, b, alpha)
}

func (r *queue) Lerp(dst, a, b device.Tensor, weight float64) {
	r.reads(a, b)
	r.writes(dst)
	r.to.Lerp(dst, a, b, weight)
}

func (r *queue) Sum(dst, src device.Tensor) {
	r.reads(src)
	r.writes(dst)
	r.to.Sum(dst, src)
}

func (r *queue) SumSquares(dst, x device.Tensor) {
	r.reads(x)
	r.writes(dst)
	r.to.SumSquares(dst, x)
}

func (r *queue) CountNonFinite(dst, x device.Tensor) {
	r.reads(x, dst)
	r.writes(dst)
	r.to.CountNonFinite(dst, x)
}

func (r *queue) RMSNorm(dst, x, weight device.Tensor, eps float64) {
	r.reads(x, weight)
	r.writes(dst)
	r.to.RMSNorm(dst, x, weight, eps)
}

func (r *queue) RMSNormBackward(dx, dweight, x, weight, dy device.Tensor, eps float64, ws device.Tensor) {
	r.reads(x, weight, dy)
	r.writes(ws, dx, dweight)
	r.to.RMSNormBackward(dx, dweight, x, weight, dy, eps, ws)
}

func (r *queue) SwiGLU(dst, gate, up device.Tensor) {
	r.reads(gate, up)
	r.writes(dst)
	r.to.SwiGLU(dst, gate, up)
}

func (r *queue) SwiGLUBackward(dgate, dup, gate, up, dy device.Tensor) {
	r.reads(gate, up, dy)
	r.writes(dgate, dup)
	r.to.SwiGLUBackward(dgate, dup, gate, up, dy)
}

func (r *queue) Softmax(dst, x device.Tensor) {
	r.reads(x)
	r.writes(dst)
	r.to.Softmax(dst, x)
}

func (r *queue) SoftmaxBackward(dx, y, dy device.Tensor) {
	r.reads(y, dy)
	r.writes(dx)
	r.to.SoftmaxBackward(dx, y, dy)
}

func (r *queue) RoPE(dst, x, cos, sin, positions device.Tensor, layout device.RoPELayout, inverse bool) {
	r.reads(x, cos, sin, positions)
	r.writes(dst)
	r.to.RoPE(dst, x, cos, sin, positions, layout, inverse)
}

func (r *queue) Embedding(dst, table, ids device.Tensor, part device.Part) {
	r.reads(table, ids)
	r.writes(dst)
	r.to.Embedding(dst, table, ids, part)
}

func (r *queue) EmbeddingBackward(dtable, ids, dy device.Tensor, part device.Part) {
	r.reads(ids, dy)
	r.writes(dtable)
	r.to.EmbeddingBackward(dtable, ids, dy, part)
}

func (r *queue) Attention(out, lse, q, k, v device.Tensor, mask device.Mask, scale float64) {
	r.reads(q, k, v, mask.Start, mask.End)
	r.writes(out, lse)
	r.to.Attention(out, lse, q, k, v, mask, scale)
}

func (r *queue) AttentionBackward(dq, dk, dv, q, k, v, out, lse, dout device.Tensor, mask device.Mask, scale float64, ws device.Tensor) {
	r.reads(q, k, v, out, lse, dout, mask.Start, mask.End)
	r.writes(ws, dq, dk, dv)
	r.to.AttentionBackward(dq, dk, dv, q, k, v, out, lse, dout, mask, scale, ws)
}

func (r *queue) Dropout(dst, x device.Tensor, p float64, draw device.Draw) {
	r.reads(x)
	r.writes(dst)
	r.to.Dropout(dst, x, p, draw)
}

func (r *queue) Random(dst device.Tensor, d device.Distribution, draw device.Draw) {
	r.writes(dst)
	r.to.Random(dst, d, draw)
}

func (r *queue) ClipFactor(dst, norm device.Tensor, max float64) {
	r.reads(norm)
	r.writes(dst)
	r.to.ClipFactor(dst, norm, max)
}

func (r *queue) AdamW(param, m, v, grad, factor device.Tensor, a device.AdamW) {
	r.reads(param, m, v, grad, factor)
	r.writes(param, m, v)
	r.to.AdamW(param, m, v, grad, factor, a)
}

func (r *queue) SGD(param, momentum, grad, factor device.Tensor, s device.SGD) {
	r.reads(param, momentum, grad, factor)
	r.writes(param, momentum)
	r.to.SGD(param, momentum, grad, factor, s)
}

// MatMul reads its destination only when it accumulates.
func (r *queue) MatMul(dst, a, b device.Tensor, accumulate bool) {
	r.reads(a, b)
	if accumulate {
		r.reads(dst)
	}
	r.writes(dst)
	r.to.MatMul(dst, a, b, accumulate)
}

// CrossEntropy overwrites the logits by their gradient when asked to.
func (r *queue) CrossEntropy(loss, logits, labels device.Tensor, ignore int32, grad bool) {
	r.reads(logits, labels)
	r.writes(loss)
	if grad {
		r.writes(logits)
	}
	r.to.CrossEntropy(loss, logits, labels, ignore, grad)
}

func (r *queue) LogSumExp(dst, x device.Tensor) {
	r.reads(x)
	r.writes(dst)
	r.to.LogSumExp(dst, x)
}

// CrossEntropyPart overwrites the logits as CrossEntropy does.
func (r *queue) CrossEntropyPart(loss, logits, labels, lse device.Tensor, part device.Part, ignore int32, grad bool) {
	r.reads(logits, labels, lse)
	r.writes(loss)
	if grad {
		r.writes(logits)
	}
	r.to.CrossEntropyPart(loss, logits, labels, lse, part, ignore, grad)
}

// Call records what the function was given.
func (r *queue) Call(f device.Function, out, in []device.Tensor) {
	r.reads(in...)
	r.writes(out...)
	r.to.Call(f, out, in)
}

func (r *queue) TopK(ids, scores, bias device.Tensor, groups, limited int) {
	r.reads(scores, bias)
	r.writes(ids)
	r.to.TopK(ids, scores, bias, groups, limited)
}

func (r *queue) GatherColumns(dst, src, ids device.Tensor) {
	r.reads(src, ids)
	r.writes(dst)
	r.to.GatherColumns(dst, src, ids)
}

func (r *queue) ScatterColumns(dst, src, ids device.Tensor) {
	r.reads(src, ids)
	r.writes(dst)
	r.to.ScatterColumns(dst, src, ids)
}

func (r *queue) SortByExpert(order, position, counts, ids device.Tensor) {
	r.reads(ids)
	r.writes(order, position, counts)
	r.to.SortByExpert(order, position, counts, ids)
}

func (r *queue) GatherRows(dst, src, index device.Tensor, divisor int) {
	r.reads(src, index)
	r.writes(dst)
	r.to.GatherRows(dst, src, index, divisor)
}

func (r *queue) CombineRows(dst, src, position, weight device.Tensor) {
	r.reads(src, position, weight)
	r.writes(dst)
	r.to.CombineRows(dst, src, position, weight)
}

func (r *queue) CombineRowsBackward(dsrc, dweight, src, position, order, weight, dy device.Tensor) {
	r.reads(src, position, order, weight, dy)
	r.writes(dsrc, dweight)
	r.to.CombineRowsBackward(dsrc, dweight, src, position, order, weight, dy)
}

func (r *queue) ExpertMajor(order, position, totals, counts device.Tensor) {
	r.reads(counts)
	r.writes(order, position, totals)
	r.to.ExpertMajor(order, position, totals, counts)
}

func (r *queue) GroupedMatMul(dst, a, b, counts device.Tensor) {
	r.reads(a, b, counts)
	r.writes(dst)
	r.to.GroupedMatMul(dst, a, b, counts)
}

func (r *queue) GroupedMatMulWeight(dst, a, b, counts device.Tensor) {
	r.reads(a, b, counts)
	r.writes(dst)
	r.to.GroupedMatMulWeight(dst, a, b, counts)
}

func (r *queue) BalanceBias(bias, counts device.Tensor, step float64) {
	r.reads(bias, counts)
	r.writes(bias)
	r.to.BalanceBias(bias, counts, step)
}
