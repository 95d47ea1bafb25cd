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
// run. The gradient adds the rows of repeated ids in the order of ids. Of a table that ranks
// share each rank looks up its rows.
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
	return b.Leave(b.Apply(embedding{part: w.Part()}, w, ids))
}

// embedding copies the rows of a table that ids name. Of a part of a table it copies those
// that are there, and zeros for the others.
type embedding struct {
	graph.Pure
	part graph.Part // that the table is
}

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

func (o embedding) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Embedding(out[0], in[0], in[1], o.part.Device()) // no id names a row of padding
	return nil
}

func (o embedding) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(embeddingBackward{part: o.part, rows: in[0].Dim(0)}, in[1], grad[0]), graph.None}
}

// embeddingBackward adds the rows of dy to the rows of the table that ids name.
type embeddingBackward struct {
	graph.Pure
	part graph.Part
	rows int
}

func (embeddingBackward) Kind() string { return "embedding_backward" }

func (o embeddingBackward) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(in[1].DType, o.rows, in[1].Last())}, nil
}

func (o embeddingBackward) Cost(in []device.Spec) graph.Cost {
	table := device.NewSpec(in[1].DType, o.rows, in[1].Last())
	return graph.Traffic(float64(in[1].Len()), in, []device.Spec{table})
}

func (o embeddingBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	live := o.part.Live(o.rows)
	x.EmbeddingBackward(out[0].Slice(0, 0, live), in[0], in[1], o.part.Device())
	if live < o.rows {
		x.Fill(out[0].Slice(0, live, o.rows), 0)
	}
	return nil
}
