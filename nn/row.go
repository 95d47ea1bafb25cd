package nn

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// RowAt returns one row of every sequence, [B, D] for x [B, T, D]: that of the index, an
// int32 scalar on the host. An index outside [0, T) fails the run. There is no gradient.
func RowAt(x, index graph.Value) graph.Value { return graph.At(x).Apply(rowAt{}, x, index) }

type rowAt struct{ graph.Pure }

func (rowAt) Kind() string { return "row_at" }

func (rowAt) Outputs(in []device.Spec) ([]device.Spec, error) {
	x, index := in[0], in[1]
	if err := wantFloats(x); err != nil {
		return nil, err
	}
	if len(x.Shape) != 3 || x.Rows != 0 || !index.Equal(device.Spec{DType: device.Int32, Place: device.OnHost}) {
		return nil, fmt.Errorf("want x [B, T, D] and an int32 scalar on the host, have %v × %v", x, index)
	}
	return []device.Spec{x.WithShape(x.Shape[0], x.Shape[2])}, nil
}

func (rowAt) Cost(in []device.Spec) graph.Cost {
	bytes := in[0].Bytes() / int64(max(1, in[0].Shape[1]))
	return graph.Cost{BytesRead: bytes, BytesWritten: bytes}
}

func (rowAt) Run(x *graph.Exec, out, in []device.Tensor) error {
	tokens, i := in[0], int(device.Elements[int32](in[1])[0])
	if i < 0 || i >= tokens.Dim(1) {
		return fmt.Errorf("row %d is outside [0, %d)", i, tokens.Dim(1))
	}
	row := tokens.Slice(1, i, i+1)
	x.Copy(out[0].Reshape(row.Dim(0), 1, row.Dim(2)), row)
	return nil
}
