package moe

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// topK chooses the k best columns of scores [T, E] + bias [E]. The choice is
// discrete: it has no gradient, and a rerun must not choose again.
type topK struct {
	k, groups, limited int
}

func (topK) Kind() string                       { return "topk" }
func (topK) Workspace([]device.Spec, int) int64 { return 0 }
func (topK) Effects() graph.Effects             { return graph.Discrete }
func (o topK) Cost(in []device.Spec) graph.Cost { return graph.Traffic(float64(in[0].Len()), in, nil) }

func (o topK) Outputs(in []device.Spec) ([]device.Spec, error) {
	s := in[0]
	if len(s.Shape) != 2 || s.Shape[1] < o.k {
		return nil, fmt.Errorf("want scores [T, E ≥ %d], have %v", o.k, s)
	}
	if len(in) > 1 && (len(in[1].Shape) != 1 || in[1].Shape[0] != s.Shape[1] || in[1].DType != s.DType) {
		return nil, fmt.Errorf("want a bias for %d experts, have %v × %v", s.Shape[1], s, in[1])
	}
	out := s.WithShape(s.Shape[0], o.k)
	out.DType = device.Int32
	return []device.Spec{out}, nil
}

func (o topK) Run(x *graph.Exec, out, in []device.Tensor) error {
	var bias device.Tensor
	if len(in) > 1 {
		bias = in[1]
	}
	x.TopK(out[0], in[0], bias, o.groups, o.limited)
	return nil
}

// gatherColumns takes src[t, ids[t, k]] of src [T, E].
type gatherColumns struct{ graph.Pure }

func (gatherColumns) Kind() string                     { return "gather" }
func (gatherColumns) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in[1:], in[1:]) }

func (gatherColumns) Outputs(in []device.Spec) ([]device.Spec, error) {
	out := in[1].WithShape(in[1].Shape...)
	out.DType = in[0].DType
	return []device.Spec{out}, nil
}

func (gatherColumns) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.GatherColumns(out[0], in[0], in[1])
	return nil
}

func (gatherColumns) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(scatterColumns{columns: in[0].Dim(-1)}, grad[0], in[1]), graph.None}
}

// scatterColumns is the gradient of gatherColumns.
type scatterColumns struct {
	graph.Pure
	columns int
}

func (scatterColumns) Kind() string                     { return "scatter" }
func (scatterColumns) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in, in) }

func (s scatterColumns) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{in[0].WithShape(in[0].Shape[0], s.columns)}, nil
}

func (scatterColumns) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.ScatterColumns(out[0], in[0], in[1])
	return nil
}

// sigmoid of scores.
type sigmoid struct{ graph.Pure }

func (sigmoid) Kind() string                                    { return "sigmoid" }
func (sigmoid) Outputs(in []device.Spec) ([]device.Spec, error) { return in, nil }
func (sigmoid) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(4*float64(in[0].Len()), in, in)
}

func (sigmoid) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Unary(device.Sigmoid, out[0], in[0])
	return nil
}

func (sigmoid) Gradient(b *graph.Builder, _, out, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(sigmoidBackward{}, out[0], grad[0])}
}

// sigmoidBackward computes dx = dy·(y − y²).
type sigmoidBackward struct{}

func (sigmoidBackward) Kind() string                                    { return "sigmoid_backward" }
func (sigmoidBackward) Effects() graph.Effects                          { return 0 }
func (sigmoidBackward) Workspace(in []device.Spec, _ int) int64         { return in[0].Bytes() }
func (sigmoidBackward) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], nil }
func (sigmoidBackward) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(3*float64(in[0].Len()), in, in[:1])
}

func (sigmoidBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	y, dy, slope := in[0], in[1], x.ScratchLike(0, in[0])
	x.Unary(device.Square, slope, y)
	x.Binary(device.Sub, slope, y, slope)
	x.Binary(device.Mul, out[0], dy, slope)
	return nil
}

// routeNorm divides each row w [T, K] by its sum + 1e-20.
type routeNorm struct{}

const routeNormEpsilon = 1e-20

func (routeNorm) Kind() string                                    { return "route_norm" }
func (routeNorm) Effects() graph.Effects                          { return 0 }
func (routeNorm) Workspace(in []device.Spec, _ int) int64         { return 2 * rowBytes(in[0]) }
func (routeNorm) Outputs(in []device.Spec) ([]device.Spec, error) { return in, nil }
func (routeNorm) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(2*float64(in[0].Len()), in, in)
}

// rowBytes is the size of one number for each row. The parts of a workspace follow
// each other without a gap, so that what is planned is what is touched.
func rowBytes(s device.Spec) int64 { return int64(s.Shape[0]) * int64(s.DType.Size()) }

// rowSums leaves Σ w + 1e-20 of each row in the first part of the workspace.
func rowSums(x *graph.Exec, w device.Tensor, offset int64) device.Tensor {
	sums := x.Scratch(0, w.DType(), w.Dim(0), 1)
	epsilon := x.Scratch(offset, w.DType(), w.Dim(0), 1)
	x.Fill(epsilon, routeNormEpsilon)
	x.Sum(sums, w)
	x.Binary(device.Add, sums, sums, epsilon)
	return sums
}

// bytesOfRows is rowBytes of a tensor.
func bytesOfRows(t device.Tensor) int64 { return int64(t.Dim(0)) * int64(t.DType().Size()) }

func (routeNorm) Run(x *graph.Exec, out, in []device.Tensor) error {
	sums := rowSums(x, in[0], bytesOfRows(in[0]))
	x.Binary(device.Div, out[0], in[0], sums.BroadcastTo(in[0]))
	return nil
}

func (routeNorm) Gradient(b *graph.Builder, in, out, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(routeNormBackward{}, in[0], out[0], grad[0])}
}

// routeNormBackward computes dw = (dy − Σ_k dy·y) / (Σ w + 1e-20).
type routeNormBackward struct{}

func (routeNormBackward) Kind() string                                    { return "route_norm_backward" }
func (routeNormBackward) Effects() graph.Effects                          { return 0 }
func (routeNormBackward) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], nil }
func (routeNormBackward) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(5*float64(in[0].Len()), in, in[:1])
}

func (routeNormBackward) Workspace(in []device.Spec, _ int) int64 {
	return 2*rowBytes(in[0]) + in[0].Bytes()
}

func (routeNormBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	w, y, dy := in[0], in[1], in[2]
	rows := bytesOfRows(w)
	product := x.ScratchLike(2*rows, w)
	inner := x.Scratch(rows, w.DType(), w.Dim(0), 1)
	x.Binary(device.Mul, product, dy, y)
	x.Sum(inner, product)
	x.Binary(device.Sub, out[0], dy, inner.BroadcastTo(dy))
	sums := rowSums(x, w, rows) // inner is no longer needed
	x.Binary(device.Div, out[0], out[0], sums.BroadcastTo(w))
	return nil
}
