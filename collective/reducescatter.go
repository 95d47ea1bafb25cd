package collective

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// ReduceScatter adds up x [M, …] over the ranks of g, in their order, and returns this
// rank's part of the sum, [N, …] with N = ⌈M / Size⌉: rank r gets the r-th. What reaches
// beyond the sum, at the end of the last ranks' parts, is zero. Sums are formed as
// [Group.AllReduce] forms them. Its gradient is [AllGatherRows].
func ReduceScatter(b *graph.Builder, g Group, x graph.Value) *Pending {
	return &Pending{
		value: b.Apply(reduceScatter{returning{asynchronous{g}}}, x),
		back: func(b *graph.Builder, grad graph.Value) graph.Value {
			return AllGatherRows(b, g, grad, x.Dim(0)).value
		},
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
	return []device.Spec{withRows(in[0], PartRows(in[0].Shape[0], r.group.Size()))}, nil
}

func (r reduceScatter) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, []device.Spec{withRows(in[0], PartRows(in[0].Shape[0], r.group.Size()))})
}

func (r reduceScatter) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Uses(out, in)
	annotate(r.group, x)
	return r.group.ReduceScatter(x.Context, out[0], in[0])
}
