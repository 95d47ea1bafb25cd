package nn

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// MatMul returns the matrix product of a and b, each transposed first if asked:
// [m, k] by [k, n] gives [m, n]. In rank 3 the first dimension is a batch that
// both share. In rank 2, dynamic rows of a are either rows of the result or, if a
// is transposed, summed over together with those of b.
func MatMul(a, b graph.Value, transposeA, transposeB bool) graph.Value {
	return graph.At(a).Apply(matmul{transposeA: transposeA, transposeB: transposeB}, a, b)
}

type matmul struct {
	graph.Pure
	transposeA, transposeB bool
}

func (matmul) Kind() string { return "matmul" }

func (o matmul) Outputs(in []device.Spec) ([]device.Spec, error) {
	a, b := in[0], in[1]
	if err := wantFloats(in...); err != nil {
		return nil, err
	}
	rank := len(a.Shape)
	if rank != len(b.Shape) || rank != 2 && rank != 3 {
		return nil, fmt.Errorf("want two matrices or two batches of matrices, have %v × %v", a, b)
	}
	m, k, k2, n := o.extents(in)
	if k != k2 {
		return nil, fmt.Errorf("inner extents %d and %d differ: %v%s × %v%s", k, k2, a, mark(o.transposeA), b, mark(o.transposeB))
	}
	if rank == 3 {
		if a.Shape[0] != b.Shape[0] || a.Rows != b.Rows {
			return nil, fmt.Errorf("batches differ: %v × %v", a, b)
		}
		return []device.Spec{a.WithShape(a.Shape[0], m, n)}, nil
	}
	switch {
	case a.Rows == 0 && b.Rows == 0:
		return []device.Spec{device.NewSpec(a.DType, m, n)}, nil
	case !o.transposeA && b.Rows == 0:
		return []device.Spec{a.WithShape(m, n)}, nil
	case o.transposeA && !o.transposeB && a.Rows == b.Rows:
		return []device.Spec{device.NewSpec(a.DType, m, n)}, nil
	}
	return nil, fmt.Errorf("dynamic rows do not match: %v%s × %v%s", a, mark(o.transposeA), b, mark(o.transposeB))
}

func mark(transposed bool) string {
	if transposed {
		return "ᵀ"
	}
	return ""
}

// extents are those of the factors after transposition.
func (o matmul) extents(in []device.Spec) (m, k, k2, n int) {
	last := len(in[0].Shape) - 1
	m, k = in[0].Shape[last-1], in[0].Shape[last]
	if o.transposeA {
		m, k = k, m
	}
	k2, n = in[1].Shape[last-1], in[1].Shape[last]
	if o.transposeB {
		k2, n = n, k2
	}
	return m, k, k2, n
}

func (o matmul) Cost(in []device.Spec) graph.Cost {
	m, k, _, n := o.extents(in)
	batch := 1
	if len(in[0].Shape) == 3 {
		batch = in[0].Shape[0]
	}
	return matmulCost(in, batch*m, n, k)
}

// matmulCost is that of a product of m×k by k×n.
func matmulCost(in []device.Spec, m, n, k int) graph.Cost {
	flops := 2 * float64(m) * float64(n) * float64(k)
	c := graph.Traffic(flops, in, nil)
	c.ModelFLOPs = flops
	c.BytesWritten = int64(m) * int64(n) * int64(in[0].DType.Size())
	return c
}

func (o matmul) Run(x *graph.Exec, out, in []device.Tensor) error {
	a, b := in[0], in[1]
	last := a.Rank() - 1
	if o.transposeA {
		a = a.Transpose(last-1, last)
	}
	if o.transposeB {
		b = b.Transpose(last-1, last)
	}
	x.MatMul(out[0], a, b, false)
	return nil
}

// Gradient of C = A·B is dA = dC·Bᵀ and dB = Aᵀ·dC. A transposed operand wants the
// transpose of that.
func (o matmul) Gradient(_ *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	a, b, dc := in[0], in[1], grad[0]
	out := make([]graph.Value, 2)
	if o.transposeA {
		out[0] = MatMul(b, dc, o.transposeB, true)
	} else {
		out[0] = MatMul(dc, b, false, !o.transposeB)
	}
	if o.transposeB {
		out[1] = MatMul(dc, a, true, o.transposeA)
	} else {
		out[1] = MatMul(a, dc, !o.transposeA, false)
	}
	return out
}
