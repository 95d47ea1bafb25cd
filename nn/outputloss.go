package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// DefaultIgnore is the label of tokens that have no loss, as in PyTorch.
const DefaultIgnore = -100

// OutputLossConfig of an [OutputLoss] or [OutputLogits].
type OutputLossConfig struct {
	Vocab int // rows of the weight: the number of classes
	// Ignore is the label of tokens that count nothing; 0 means [DefaultIgnore].
	Ignore int32
	// Init of the weight; nil is torchtitan's: a normal distribution with a
	// deviation of D^−½, cut at three of them.
	Init graph.Initializer
	// Weight [Vocab, D], if given, is used in place of a parameter: an embedding
	// table that is tied to the output.
	Weight graph.Value
}

// OutputLoss returns the scalar scale · Σ CE(hidden·weightᵀ, labels): the last
// layer and the cross-entropy as one op, of the kind output_loss.
//
// hidden is [..., D], labels int32 [...], scale a scalar of hidden's dtype: one
// over the valid tokens of the optimizer step. The parameter is `weight` [Vocab, D].
// The loss has hidden's dtype. A label that is neither in [0, Vocab) nor Ignore
// fails the run. No gradient flows to scale.
//
// The op walks blocks of tokens. The logits of one block live in the workspace,
// where they become their own gradient and are multiplied at once into dhidden
// and dweight, further outputs that Backward then only scales. So full logits
// never exist, and there are three matrix products. Blocks of the vocabulary would
// bound memory as well, but the softmax needs the sum over all blocks before the
// gradient of any: the logits would have to be computed a second time, a fourth
// product. In a program without Backward the op computes the loss alone.
//
// Of a weight that ranks share each rank has some classes, and its loss is that of the tokens
// whose labels are among them: the losses of the ranks add up to the whole. The log of the
// softmax's denominator is computed first, by an op of the kind output_logsumexp, and combined
// over ranks in their order. That is the fourth product, which keeps blocks small here too.
func OutputLoss(b *graph.Builder, hidden, labels, scale graph.Value, c OutputLossConfig) graph.Value {
	if v, bad := refuse(b, "output_loss", hidden); bad {
		return v
	}
	hidden = b.Enter(hidden)
	w, ok := c.weight(b, "output_loss", hidden)
	if !ok {
		return w
	}
	if c.Ignore == 0 {
		c.Ignore = DefaultIgnore
	}
	in := []graph.Value{hidden, w, labels, scale}
	part := w.Part()
	if !part.IsWhole() {
		in = append(in, b.Gather(b.Apply(outputLogSumExp{part: part}, hidden, w)))
	}
	return b.ApplyAll(outputLoss{ignore: c.Ignore, part: part}, in...)[0]
}

// OutputLogits returns hidden·weightᵀ, [..., Vocab] for hidden [..., D], with the
// parameter of [OutputLoss]: what a model that was trained with it predicts.
func OutputLogits(b *graph.Builder, hidden graph.Value, c OutputLossConfig) graph.Value {
	if v, bad := refuse(b, "output_logits", hidden); bad {
		return v
	}
	w, ok := c.weight(b, "output_logits", hidden)
	if !ok {
		return w
	}
	if !w.Part().IsWhole() {
		return b.Fail("output_logits: ranks share the classes: logits exist in parts alone; train with OutputLoss, or keep the weight whole")
	}
	return b.Apply(linear{}, hidden, w)
}

// weight is the tied or the own matrix of the last layer.
func (c OutputLossConfig) weight(b *graph.Builder, kind string, hidden graph.Value) (w graph.Value, ok bool) {
	if !c.Weight.IsNone() {
		return c.Weight, true
	}
	if c.Vocab <= 0 {
		return b.Fail("%s: %d classes: set Vocab to 1 or more", kind, c.Vocab), false
	}
	d := hidden.Spec().Last()
	if c.Init == nil {
		std := 1 / math.Sqrt(float64(max(d, 1)))
		c.Init = graph.TruncatedNormal{Std: std, Low: -3 * std, High: 3 * std}
	}
	return b.Parameter("weight", hidden.Spec().DType, c.Init, c.Vocab, d), true
}

// outputLoss has the inputs hidden, weight, labels and scale, and the outputs
// loss, dhidden and dweight. Where the weight is a part of the classes, a fifth input has the
// logsumexp of the logits of each part, [parts · tokens].
type outputLoss struct {
	ignore int32
	part   graph.Part
}

func (outputLoss) Kind() string           { return "output_loss" }
func (outputLoss) Effects() graph.Effects { return 0 }
func (outputLoss) Optional(i int) bool    { return i > 0 }

func (outputLoss) Outputs(in []device.Spec) ([]device.Spec, error) {
	hidden, weight, labels, scale := in[0], in[1], in[2], in[3]
	if err := wantFloats(hidden, weight, scale); err != nil {
		return nil, err
	}
	if err := wantIndices("labels", labels); err != nil {
		return nil, err
	}
	if err := wantScalar("scale", scale); err != nil {
		return nil, err
	}
	n := len(hidden.Shape)
	if n < 2 || !slices.Equal(hidden.Shape[:n-1], labels.Shape) || hidden.Rows != labels.Rows {
		return nil, fmt.Errorf("want hidden [..., D] and labels [...], have %v × %v", hidden, labels)
	}
	if len(weight.Shape) != 2 || weight.Shape[1] != hidden.Last() {
		return nil, fmt.Errorf("want hidden [..., D] and weight [V, D], have %v × %v", hidden, weight)
	}
	if len(in) > 4 && (in[4].DType != hidden.DType || len(in[4].Shape) != 1 || labels.Len() > 0 && in[4].Len()%labels.Len() != 0) {
		return nil, fmt.Errorf("want a logsumexp of each of %d tokens and of each part, have %v", labels.Len(), in[4])
	}
	return []device.Spec{device.NewSpec(hidden.DType), hidden, weight}, nil
}

const (
	// A block has enough rows to keep the matrix products busy; more would only
	// take memory. With a large vocabulary fewer fit the bound.
	blockRows     = 256
	minBlockRows  = 16
	maxBlockBytes = 16 << 20
)

// blockOf is the number of tokens in a block. It depends on the vocabulary
// alone, so that sums over blocks have the same order for any number of rows.
func blockOf(vocab int, d device.DType) int {
	return min(max(maxBlockBytes/max(1, vocab*d.Size()), minBlockRows), blockRows)
}

// Workspace has a block of logits, then one loss for each token. With parts the block's place
// is first that of the logsumexps of all parts, and theirs together stand behind the losses.
func (outputLoss) Workspace(in []device.Spec, _ int) int64 {
	tokens, vocab, d := in[2].Len(), in[1].Shape[0], in[0].DType
	bytes := blockBytes(tokens, vocab, d) + tokenBytes(tokens, d)
	if len(in) > 4 {
		bytes = max(blockBytes(tokens, vocab, d), in[4].Bytes()) + 2*tokenBytes(tokens, d)
	}
	// Not even without tokens is it empty: Run takes views of it.
	return max(1, bytes)
}

func tokenBytes(tokens int, d device.DType) int64 { return int64(tokens) * int64(d.Size()) }

// blockBytes are those of the logits of a block.
func blockBytes(tokens, vocab int, d device.DType) int64 {
	return int64(min(blockOf(vocab, d), tokens)) * int64(vocab) * int64(d.Size())
}

// Cost is that of a training step: a program without Backward runs a third of it.
func (outputLoss) Cost(in []device.Spec) graph.Cost {
	logits := float64(in[2].Len()) * float64(in[1].Shape[0])
	c := graph.Traffic(6*logits*float64(in[1].Shape[1]), in, in[:2])
	c.ModelFLOPs = c.ExecutedFLOPs
	c.ExecutedFLOPs += 5 * logits
	return c
}

func (o outputLoss) Run(x *graph.Exec, out, in []device.Tensor) error {
	hidden, weight, scale := in[0].Matrix(), in[1], in[3]
	tokens, vocab, d := hidden.Dim(0), weight.Dim(0), hidden.DType()
	labels := in[2].Reshape(tokens)
	behind := blockBytes(tokens, vocab, d)
	var lse device.Tensor
	if len(in) > 4 {
		behind = max(behind, in[4].Bytes())
		lse = combineLogSumExp(x, in[4], tokens, behind+tokenBytes(tokens, d))
	}
	losses := x.Scratch(behind, d, tokens)
	dhidden, dweight := out[1], out[2]
	if !dhidden.IsZero() {
		dhidden = dhidden.Matrix()
	}
	if tokens == 0 && !dweight.IsZero() {
		x.Fill(dweight, 0)
	}
	block := blockOf(vocab, d)
	for lo := 0; lo < tokens; lo += block {
		hi := min(lo+block, tokens)
		logits := x.Scratch(0, d, hi-lo, vocab)
		h := hidden.Slice(0, lo, hi)
		x.MatMul(logits, h, weight.Transpose(0, 1), false)
		grad := !dhidden.IsZero() || !dweight.IsZero()
		if lse.IsZero() {
			x.CrossEntropy(losses.Slice(0, lo, hi), logits, labels.Slice(0, lo, hi), o.ignore, grad)
		} else {
			// Classes that are padding have zeros for weights and logits, and no gradient.
			x.CrossEntropyPart(losses.Slice(0, lo, hi), logits.Slice(1, 0, o.part.Live(vocab)), labels.Slice(0, lo, hi), lse.Slice(0, lo, hi), o.part.Device(), o.ignore, grad)
		}
		if !dhidden.IsZero() {
			x.MatMul(dhidden.Slice(0, lo, hi), logits, weight, false)
		}
		if !dweight.IsZero() {
			x.MatMul(dweight, logits.Transpose(0, 1), h, lo > 0)
		}
	}
	x.Sum(out[0].Reshape(1), losses)
	// Scaling results is less work than scaling logits.
	x.Binary(device.Mul, out[0], out[0], scale)
	if !dhidden.IsZero() {
		x.Binary(device.Mul, dhidden, dhidden, scale.BroadcastTo(dhidden))
	}
	if !dweight.IsZero() {
		x.Binary(device.Mul, dweight, dweight, scale.BroadcastTo(dweight))
	}
	return nil
}

func (outputLoss) Gradient(b *graph.Builder, in, out, grad []graph.Value) []graph.Value {
	if !grad[1].IsNone() || !grad[2].IsNone() {
		v := b.Fail("output_loss: its gradients cannot be differentiated again")
		return slices.Repeat([]graph.Value{v}, len(in))
	}
	dhidden, dweight := out[1], out[2]
	if !graph.IsOne(grad[0]) {
		dhidden, dweight = b.Apply(scale{}, dhidden, grad[0]), b.Apply(scale{}, dweight, grad[0])
	}
	back := make([]graph.Value, len(in))
	back[0], back[1] = dhidden, dweight
	return back
}
