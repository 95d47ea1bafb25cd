package collective

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// AllReduce returns the sum of x over the ranks of g, the same bits on each. Its
// gradient is the sum of the ranks' gradients.
func AllReduce(b *graph.Builder, g Group, x graph.Value) *Pending {
	return &Pending{
		value: b.Apply(allReduce{returning{asynchronous{g}}}, x),
		back:  func(b *graph.Builder, grad graph.Value) graph.Value { return AllReduce(b, g, grad).value },
	}
}

type allReduce struct{ returning }

func (allReduce) Kind() string { return "all_reduce" }

func (allReduce) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := sameRows(in[0]); err != nil {
		return nil, err
	}
	return in, summable(in[0])
}

func (allReduce) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, in)
}

func (a allReduce) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0])
	x.Uses(out, out)
	annotate(a.group, x)
	return a.group.AllReduce(x.Context, out[0])
}

// AllReduceState replaces a parameter or state by its sum over the ranks of g, on the
// compute lane: gradients before the norm is taken.
func AllReduceState(b *graph.Builder, g Group, state graph.Value) {
	b.Apply(allReduceState{group: g}, state)
}

type allReduceState struct {
	graph.Pure
	group Group
}

func (allReduceState) Kind() string           { return "all_reduce" }
func (allReduceState) Effects() graph.Effects { return graph.Collective }
func (allReduceState) Mutates() []int         { return []int{0} }

func (allReduceState) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, in)
}

func (allReduceState) Outputs([]device.Spec) ([]device.Spec, error) { return graph.TokenOutput(), nil }

func (a allReduceState) Run(x *graph.Exec, _, in []device.Tensor) error {
	x.Uses(in, in)
	annotate(a.group, x)
	return a.group.AllReduce(x.Context, in[0])
}
