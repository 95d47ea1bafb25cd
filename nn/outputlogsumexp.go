package nn

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// outputLogSumExp computes, block by block, the logsumexp [tokens] of the logits
// hidden·weightᵀ for a part of the classes. It is a part of [OutputLoss], which has its
// gradient.
type outputLogSumExp struct {
	graph.Pure
	part graph.Part // that the weight is
}

func (outputLogSumExp) Kind() string { return "output_logsumexp" }

func (outputLogSumExp) Outputs(in []device.Spec) ([]device.Spec, error) {
	hidden, weight := in[0], in[1]
	if err := wantFloats(in...); err != nil {
		return nil, err
	}
	if hidden.Rows != 0 || len(hidden.Shape) < 2 || len(weight.Shape) != 2 || weight.Shape[1] != hidden.Last() {
		return nil, fmt.Errorf("want hidden [..., D] of a fixed number of tokens and weight [V, D], have %v × %v", hidden, weight)
	}
	return []device.Spec{device.NewSpec(hidden.DType, rowsOf(hidden))}, nil
}

func (outputLogSumExp) Workspace(in []device.Spec, _ int) int64 {
	return max(1, blockBytes(rowsOf(in[0]), in[1].Shape[0], in[0].DType))
}

// Cost has no model FLOPs: those of the logits are in the loss.
func (outputLogSumExp) Cost(in []device.Spec) graph.Cost {
	logits := float64(rowsOf(in[0])) * float64(in[1].Shape[0])
	return graph.Traffic(logits*float64(2*in[1].Shape[1]+3), in, nil)
}

func (o outputLogSumExp) Run(x *graph.Exec, out, in []device.Tensor) error {
	hidden := in[0].Matrix()
	tokens, vocab, d := hidden.Dim(0), in[1].Dim(0), hidden.DType()
	block := blockOf(vocab, d)
	for lo := 0; lo < tokens; lo += block {
		hi := min(lo+block, tokens)
		logits := x.Scratch(0, d, hi-lo, vocab)
		x.MatMul(logits, hidden.Slice(0, lo, hi), in[1].Transpose(0, 1), false)
		x.LogSumExp(out[0].Slice(0, lo, hi), logits.Slice(1, 0, o.part.Live(vocab)))
	}
	return nil
}

// combineLogSumExp is the logsumexp [tokens] over all parts of what each of them has,
// [parts · tokens], added in the order of parts. It takes the start of the workspace, and puts
// the result where it is told.
func combineLogSumExp(x *graph.Exec, parts device.Tensor, tokens int, at int64) device.Tensor {
	whole := x.Scratch(at, parts.DType(), tokens)
	if tokens > 0 {
		n := parts.Len() / tokens
		byToken := x.Scratch(0, parts.DType(), tokens, n)
		x.Copy(byToken, parts.Reshape(n, tokens).Transpose(0, 1))
		x.LogSumExp(whole, byToken)
	}
	return whole
}
