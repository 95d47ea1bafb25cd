package collective

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// ReduceScatter adds up x [Size·N, …] over the ranks of g, in their order, and returns
// this rank's part of the sum, [N, …]: rank r gets the r-th. Sums are formed as
// [Group.AllReduce] forms them. Its gradient is [AllGather].
func ReduceScatter(b *graph.Builder, g Group, x graph.Value) *Pending {
	return &Pending{
		value: b.Apply(reduceScatter{returning{asynchronous{g}}}, x),
		back:  func(b *graph.Builder, grad graph.Value) graph.Value { return AllGather(b, g, grad).value },
	}
}

type reduceScatter struct{ returning }

func (reduceScatter) Kind() string { return "reduce_scatter" }

func (r reduceScatter) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := fixedRows(in[0]); err != nil {
		return nil, err
	}
	if err := summable(in[0]); err != nil {
		return nil, err
	}
	out := in[0].WithShape(in[0].Shape...)
	if out.Shape[0]%r.group.Size() != 0 {
		return nil, fmt.Errorf("%v in equal parts for %d ranks: want a multiple of rows", in[0], r.group.Size())
	}
	out.Shape[0] /= r.group.Size()
	return []device.Spec{out}, nil
}

func (r reduceScatter) Cost(in []device.Spec) graph.Cost {
	c := graph.Traffic(float64(in[0].Len()), in, in)
	c.BytesWritten /= int64(r.group.Size())
	return c
}

func (r reduceScatter) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Uses(out, in)
	annotate(r.group, x)
	return r.group.ReduceScatter(x.Context, out[0], in[0])
}
