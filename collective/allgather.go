package collective

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// AllGather returns the x [N, …] of all ranks of g, one after the other: [Size·N, …].
// N is the same on every rank. Its gradient is [ReduceScatter]: each rank gets the
// sum of what all ranks made of its part.
func AllGather(b *graph.Builder, g Group, x graph.Value) *Pending {
	return AllGatherRows(b, g, x, g.Size()*x.Dim(0))
}

// AllGatherRows returns the first rows of what [AllGather] does, [rows, …], where N is
// ⌈rows / Size⌉. What reaches beyond, at the end of the last ranks' x, is padding: it is
// neither sent nor held, and its gradient is zero.
func AllGatherRows(b *graph.Builder, g Group, x graph.Value, rows int) *Pending {
	return &Pending{
		value: b.Apply(allGather{returning{asynchronous{g}}, rows}, x),
		back:  func(b *graph.Builder, grad graph.Value) graph.Value { return ReduceScatter(b, g, grad).value },
	}
}

type allGather struct {
	returning
	rows int
}

func (allGather) Kind() string { return "all_gather" }

func (a allGather) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := fixedRows(in[0]); err != nil {
		return nil, err
	}
	if part := PartRows(a.rows, a.group.Size()); in[0].Shape[0] != part {
		return nil, fmt.Errorf("%d rows of %d ranks: want parts of %d rows, have %v", a.rows, a.group.Size(), part, in[0])
	}
	return []device.Spec{withRows(in[0], a.rows)}, nil
}

func (a allGather) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(0, in, []device.Spec{withRows(in[0], a.rows)})
}

func (a allGather) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Uses(out, in)
	annotate(a.group, x)
	return a.group.AllGather(x.Context, out[0], in[0])
}
