package nn

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// CrossEntropy returns the loss of each token, logsumexp(logits) − logits[label], for
// logits [..., V] and labels int32 [...]: what a loss of one's own starts from.
// A label of ignore (0 means [DefaultIgnore]) gives 0; another one outside [0, V) fails
// the run. The result has the shape of labels and the dtype of logits.
//
// Where the loss is simply the sum, [OutputLoss] needs no memory for logits.
func CrossEntropy(logits, labels graph.Value, ignore int32) graph.Value {
	if ignore == 0 {
		ignore = DefaultIgnore
	}
	return graph.At(logits).Apply(crossEntropy{ignore: ignore}, logits, labels)
}

type crossEntropy struct {
	graph.Pure
	ignore int32
}

func (crossEntropy) Kind() string { return "cross_entropy" }

func (crossEntropy) Outputs(in []device.Spec) ([]device.Spec, error) {
	logits, labels := in[0], in[1]
	if err := wantFloats(logits); err != nil {
		return nil, err
	}
	if err := wantIndices("labels", labels); err != nil {
		return nil, err
	}
	n := len(logits.Shape)
	if n < 2 || logits.Last() < 1 || !slices.Equal(logits.Shape[:n-1], labels.Shape) || logits.Rows != labels.Rows {
		return nil, fmt.Errorf("want logits [..., V] and labels [...], have %v × %v", logits, labels)
	}
	out := labels
	out.DType = logits.DType
	return []device.Spec{out}, nil
}

// Workspace is a copy of the logits: the kernel works in place.
func (crossEntropy) Workspace(in []device.Spec, _ int) int64 { return max(1, in[0].Bytes()) }

func (crossEntropy) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(4*float64(in[0].Len()), in, in[1:])
}

func (o crossEntropy) Run(x *graph.Exec, out, in []device.Tensor) error {
	logits := in[0].Matrix()
	tokens := logits.Dim(0)
	copied := x.Scratch(0, logits.DType(), tokens, logits.Dim(1))
	x.Copy(copied, logits)
	x.CrossEntropy(out[0].Reshape(tokens), copied, in[1].Reshape(tokens), o.ignore, false)
	return nil
}

func (o crossEntropy) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(crossEntropyBackward{ignore: o.ignore}, in[0], in[1], grad[0]), graph.None}
}

// crossEntropyBackward computes dlogits = (softmax(logits) − onehot(labels)) · dloss
// from logits, labels and dloss [...].
type crossEntropyBackward struct {
	graph.Pure
	ignore int32
}

func (crossEntropyBackward) Kind() string { return "cross_entropy_backward" }

func (crossEntropyBackward) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], nil }

// Workspace holds the losses, which the kernel computes again.
func (crossEntropyBackward) Workspace(in []device.Spec, _ int) int64 { return max(1, in[2].Bytes()) }

func (crossEntropyBackward) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(5*float64(in[0].Len()), in, in[:1])
}

func (o crossEntropyBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	logits := out[0].Matrix()
	tokens := logits.Dim(0)
	x.Copy(logits, in[0].Matrix())
	x.CrossEntropy(x.Scratch(0, logits.DType(), tokens), logits, in[1].Reshape(tokens), o.ignore, true)
	x.Binary(device.Mul, logits, logits, in[2].Reshape(tokens, 1).BroadcastTo(logits))
	return nil
}
