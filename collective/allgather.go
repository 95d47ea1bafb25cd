package collective

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// AllGather returns the x [N, …] of all ranks of g, one after the other: [Size·N, …].
// N is the same on every rank. Its gradient is [ReduceScatter]: each rank gets the
// sum of what all ranks made of its part.
func AllGather(b *graph.Builder, g Group, x graph.Value) *Pending {
	return &Pending{
		value: b.Apply(allGather{returning{asynchronous{g}}}, x),
		back:  func(b *graph.Builder, grad graph.Value) graph.Value { return ReduceScatter(b, g, grad).value },
	}
}

type allGather struct{ returning }

func (allGather) Kind() string { return "all_gather" }

func (a allGather) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := fixedRows(in[0]); err != nil {
		return nil, err
	}
	out := in[0].WithShape(in[0].Shape...)
	out.Shape[0] *= a.group.Size()
	return []device.Spec{out}, nil
}

func (a allGather) Cost(in []device.Spec) graph.Cost {
	c := graph.Traffic(0, in, in)
	c.BytesWritten *= int64(a.group.Size())
	return c
}

func (a allGather) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Uses(out, in)
	annotate(a.group, x)
	return a.group.AllGather(x.Context, out[0], in[0])
}
