package collective

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// AllToAll sends rows of x [N, …] to the ranks of g and receives rows from them.
// send and receive are host int32 [Size, n], see [Group.AllToAll]. The result has
// the given Rows and at most bound rows; with rows 0 it has bound rows exactly.
// The gradient is the all-to-all the other way.
func AllToAll(b *graph.Builder, g Group, x, receive, send graph.Value, rows device.Rows, bound int) *Pending {
	return &Pending{
		value: b.Apply(allToAll{asynchronous{g}, rows, bound}, x, receive, send),
		back: func(b *graph.Builder, grad graph.Value) graph.Value {
			s := x.Spec()
			return AllToAll(b, g, grad, send, receive, s.Rows, x.Dim(0)).value
		},
	}
}

type allToAll struct {
	asynchronous
	rows  device.Rows
	bound int
}

func (allToAll) Kind() string { return "all_to_all" }

func (a allToAll) Outputs(in []device.Spec) ([]device.Spec, error) {
	x := in[0]
	if len(x.Shape) < 1 {
		return nil, fmt.Errorf("want rows to send, have the scalar %v", x)
	}
	for i, s := range in[1:] {
		if s.Place != device.OnHost || s.DType != device.Int32 || len(s.Shape) != 2 || s.Shape[0] != a.group.Size() {
			return nil, fmt.Errorf("%s: want host int32 [%d, n], have %v", [...]string{"receive", "send"}[i], a.group.Size(), s)
		}
	}
	out := x.WithShape(x.Shape...)
	out.Shape[0], out.Rows = a.bound, a.rows
	return []device.Spec{out}, nil
}

func (a allToAll) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in[:1], in[:1]) }

// LiveRows is what the ranks will send.
func (a allToAll) LiveRows(in []device.Tensor) (int, error) {
	n := 0
	for _, c := range device.Elements[int32](in[1]) {
		n += int(c)
	}
	return n, nil
}

func (a allToAll) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Uses(out, in)
	annotate(a.group, x)
	return a.group.AllToAll(x.Context, out[0], in[0], in[1], in[2])
}

func (allToAll) Gradient(_ *graph.Builder, _, _, grad []graph.Value) []graph.Value {
	return []graph.Value{arrived(grad[0]), graph.None, graph.None}
}

// ExchangeCounts sends row r of counts, int32 [Size, n], to rank r and receives a row
// from each: the counts of rows that an AllToAll will bring.
func ExchangeCounts(b *graph.Builder, g Group, counts graph.Value) *Pending {
	return &Pending{value: b.Apply(exchangeCounts{asynchronous{g}}, counts)}
}

type exchangeCounts struct{ asynchronous }

func (exchangeCounts) Kind() string                     { return "all_to_all" }
func (exchangeCounts) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in, in) }

func (e exchangeCounts) Outputs(in []device.Spec) ([]device.Spec, error) {
	if s := in[0]; s.DType != device.Int32 || len(s.Shape) != 2 || s.Shape[0] != e.group.Size() {
		return nil, fmt.Errorf("want int32 [%d, n], have %v", e.group.Size(), s)
	}
	return in, nil
}

func (e exchangeCounts) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Uses(out, in)
	annotate(e.group, x)
	return e.group.AllToAll(x.Context, out[0], in[0], device.Tensor{}, device.Tensor{})
}
