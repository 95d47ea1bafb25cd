package nn

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Dropout returns x with each element set to 0 with probability p and the others
// divided by 1−p; with p = 0 it returns x itself. The draws depend on the Store's
// seed, step, microbatch, name and element, so a rerun repeats them, and so does
// the gradient, which keeps no mask.
func Dropout(b *graph.Builder, x graph.Value, p float64) graph.Value {
	if v, bad := refuse(b, "dropout", x); bad {
		return v
	}
	if p == 0 {
		return x
	}
	if !(p > 0 && p < 1) { // also refuses NaN
		return b.Fail("dropout: probability %g: want 0 or more and less than 1", p)
	}
	return b.Apply(dropout{kind: "dropout", p: p, key: b.RandomKey("dropout"), first: x.Part().First}, x)
}

type dropout struct {
	kind  string
	p     float64
	key   uint64
	first int // row of the whole
}

func (o dropout) Kind() string                     { return o.kind }
func (dropout) Workspace([]device.Spec, int) int64 { return 0 }
func (dropout) Effects() graph.Effects             { return graph.Random }
func (dropout) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, in[:1])
}

func (dropout) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], wantFloats(in...) }

func (o dropout) Run(x *graph.Exec, out, in []device.Tensor) error {
	var shape [device.MaxRank]int
	rank := in[0].Rank()
	for i := range rank {
		shape[i] = in[0].Dim(i)
	}
	draw := x.Draw(o.key, shape[:rank]...)
	if o.first > 0 {
		draw.Offset[0] = o.first // a part is [rows, D]
	}
	x.Dropout(out[0], in[0], o.p, draw)
	return nil
}

// Gradient is the same op on the gradient, with the same draws.
func (o dropout) Gradient(b *graph.Builder, _, _, grad []graph.Value) []graph.Value {
	o.kind = "dropout_backward"
	return []graph.Value{b.Apply(o, grad[0])}
}
