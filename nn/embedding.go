package nn

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// EmbeddingConfig of an [Embedding].
type EmbeddingConfig struct {
	Vocab int // rows of the table
	Dim   int // columns
	// DType of the table and with it of the activations; float32 if not set.
	DType device.DType
	// Init of the table; nil is the standard normal distribution.
	Init graph.Initializer
}

// Embedding returns the rows of the parameter `weight` [Vocab, Dim] that ids
// (int32 of any shape [...]) name: [..., Dim]. An id outside [0, Vocab) fails the
// run. The gradient adds the rows of repeated ids in the order of ids.
func Embedding(b *graph.Builder, ids graph.Value, c EmbeddingConfig) graph.Value {
	if v, bad := refuse(b, "embedding", ids); bad {
		return v
	}
	if c.DType == device.Invalid {
		c.DType = device.Float32
	}
	if c.Init == nil {
		c.Init = graph.Normal{Std: 1}
	}
	if c.Vocab <= 0 || c.Dim <= 0 {
		return b.Fail("embedding: a table of %d rows and %d columns: set Vocab and Dim to 1 or more", c.Vocab, c.Dim)
	}
	w := b.Parameter("weight", c.DType, c.Init, c.Vocab, c.Dim)
	return b.Apply(embedding{}, w, ids)
}

// embedding copies the rows of a table that ids name.
type embedding struct{ graph.Pure }

func (embedding) Kind() string { return "embedding" }

func (embedding) Outputs(in []device.Spec) ([]device.Spec, error) {
	table, ids := in[0], in[1]
	if err := wantFloats(table); err != nil {
		return nil, err
	}
	if err := wantIndices("ids", ids); err != nil {
		return nil, err
	}
	if len(ids.Shape) >= device.MaxRank {
		return nil, fmt.Errorf("ids: rank %d leaves no room for a dimension: %v", len(ids.Shape), ids)
	}
	return []device.Spec{{DType: table.DType, Shape: append(slices.Clone(ids.Shape), table.Last()), Rows: ids.Rows}}, nil
}

func (embedding) Cost(in []device.Spec) graph.Cost {
	bytes := int64(in[1].Len()) * int64(in[0].Last()) * int64(in[0].DType.Size())
	return graph.Cost{BytesRead: bytes + in[1].Bytes(), BytesWritten: bytes}
}

func (embedding) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Embedding(out[0], in[0], in[1])
	return nil
}

func (embedding) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(embeddingBackward{vocab: in[0].Dim(0)}, in[1], grad[0]), graph.None}
}

// embeddingBackward adds the rows of dy to the rows of the table that ids name.
type embeddingBackward struct {
	graph.Pure
	vocab int
}

func (embeddingBackward) Kind() string { return "embedding_backward" }

func (o embeddingBackward) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(in[1].DType, o.vocab, in[1].Last())}, nil
}

func (o embeddingBackward) Cost(in []device.Spec) graph.Cost {
	table := device.NewSpec(in[1].DType, o.vocab, in[1].Last())
	return graph.Traffic(float64(in[1].Len()), in, []device.Spec{table})
}

func (embeddingBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.EmbeddingBackward(out[0], in[0], in[1])
	return nil
}
