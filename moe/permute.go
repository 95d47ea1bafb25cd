package moe

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// permutation is a bijection of rows: order[n] is the row that comes n-th, and
// position[order[n]] = n.
type permutation struct{ order, position graph.Value }

func (p permutation) inverse() permutation { return permutation{p.position, p.order} }

// sortByExpert sorts the choices ids [T, K] by expert, stably, and counts them:
// order and position are int32 [N], counts int32 [E].
func sortByExpert(b *graph.Builder, ids graph.Value, experts int) (p permutation, counts graph.Value) {
	out := b.ApplyAll(sorting{experts: experts}, ids)
	return permutation{out[0], out[1]}, out[2]
}

type sorting struct {
	graph.Pure
	experts int
}

func (sorting) Kind() string                     { return "sort_by_expert" }
func (sorting) Cost(in []device.Spec) graph.Cost { return graph.Traffic(float64(in[0].Len()), in, in) }

func (s sorting) Outputs(in []device.Spec) ([]device.Spec, error) {
	if ids := in[0]; ids.DType != device.Int32 || len(ids.Shape) != 2 {
		return nil, fmt.Errorf("want ids int32 [T, K], have %v", ids)
	}
	rows := device.NewSpec(device.Int32, in[0].Len())
	return []device.Spec{rows, rows, device.NewSpec(device.Int32, s.experts)}, nil
}

func (sorting) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.SortByExpert(out[0], out[1], out[2], in[0])
	return nil
}

// gatherRows gives row order[n]/copies of src [T, D] as the n-th row, for a
// permutation of T·copies rows: every source row is taken copies times.
func gatherRows(b *graph.Builder, src graph.Value, p permutation, copies int) graph.Value {
	return b.Apply(gather{copies: copies, position: p.position}, src, p.order)
}

type gather struct {
	graph.Pure
	copies   int
	position graph.Value // for the gradient: forward does not read it
}

func (gather) Kind() string { return "permute" }
func (g gather) Cost(in []device.Spec) graph.Cost {
	out := rowsLike(in[0], in[1])
	return graph.Traffic(0, []device.Spec{out, in[1]}, []device.Spec{out})
}

// rowsLike is the spec of as many rows of src as index has elements.
func rowsLike(src, index device.Spec) device.Spec {
	out := index.WithShape(append([]int{index.Shape[0]}, src.Shape[1:]...)...)
	out.DType = src.DType
	return out
}

func (g gather) Outputs(in []device.Spec) ([]device.Spec, error) {
	src, order := in[0], in[1]
	if len(src.Shape) != 2 || len(order.Shape) != 1 || src.Shape[0]*g.copies != order.Shape[0] {
		return nil, fmt.Errorf("want rows [T, D] and a permutation of %d·T rows, have %v × %v", g.copies, src, order)
	}
	return []device.Spec{rowsLike(src, order)}, nil
}

func (g gather) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.GatherRows(out[0], in[0], in[1], g.copies)
	return nil
}

func (g gather) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(sumCopies{rows: in[0].Spec()}, grad[0], g.position), graph.None}
}

// sumCopies is the gradient of gather: each source row gets the sum over its copies,
// in their order.
type sumCopies struct {
	graph.Pure
	rows device.Spec // of the source
}

func (sumCopies) Kind() string { return "unpermute" }
func (s sumCopies) Outputs([]device.Spec) ([]device.Spec, error) {
	return []device.Spec{s.rows}, nil
}
func (s sumCopies) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, []device.Spec{s.rows})
}

func (sumCopies) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.CombineRows(out[0], in[0], in[1], device.Tensor{})
	return nil
}

// combineRows computes out[t] = Σ_k weights[t, k] · src[position[t·K + k]] for src
// [N, D]: it undoes the permutation, weighs and sums in the order of k.
func combineRows(b *graph.Builder, src graph.Value, p permutation, weights graph.Value) graph.Value {
	return b.Apply(combine{order: p.order}, src, weights, p.position)
}

type combine struct {
	graph.Pure
	order graph.Value // for the gradient: forward does not read it
}

func (combine) Kind() string { return "combine" }
func (combine) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(2*float64(in[0].Len()), in, []device.Spec{tokensLike(in)})
}

func tokensLike(in []device.Spec) device.Spec { return in[1].WithShape(in[1].Shape[0], in[0].Shape[1]) }

func (combine) Outputs(in []device.Spec) ([]device.Spec, error) {
	src, w := in[0], in[1]
	if len(src.Shape) != 2 || len(w.Shape) != 2 || src.Shape[0] != w.Len() || in[2].Len() != w.Len() || src.DType != w.DType {
		return nil, fmt.Errorf("want rows [T·K, D], weights [T, K] and a permutation, have %v × %v × %v", src, w, in[2])
	}
	return []device.Spec{tokensLike(in)}, nil
}

func (combine) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.CombineRows(out[0], in[0], in[2], in[1])
	return nil
}

func (c combine) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	out := b.ApplyAll(combineBackward{}, in[0], in[1], in[2], c.order, grad[0])
	return []graph.Value{out[0], out[1], graph.None}
}

// combineBackward has the inputs src, weights, position, order and dy, and the
// outputs dsrc and dweights.
type combineBackward struct{ graph.Pure }

func (combineBackward) Kind() string                                    { return "combine_backward" }
func (combineBackward) Optional(int) bool                               { return true }
func (combineBackward) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:2], nil }
func (combineBackward) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(3*float64(in[0].Len()), in, in[:2])
}

func (combineBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.CombineRowsBackward(out[0], out[1], in[0], in[2], in[3], in[1], in[4])
	return nil
}
