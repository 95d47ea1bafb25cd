package collective

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Broadcast returns root's x on every rank of g. The other ranks' x, of the same shape,
// give the shape only: their gradient is zero, and root's is the sum of the gradients of
// all ranks, added in their order.
func Broadcast(b *graph.Builder, g Group, x graph.Value, root int) *Pending {
	return &Pending{
		value: b.Apply(broadcast{returning{asynchronous{g}}, root}, x),
		back: func(b *graph.Builder, grad graph.Value) graph.Value {
			return reduceTo(b, g, grad, root).value
		},
	}
}

type broadcast struct {
	returning
	root int
}

func (broadcast) Kind() string                     { return "broadcast" }
func (broadcast) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in, in) }

func (c broadcast) Outputs(in []device.Spec) ([]device.Spec, error) {
	return in, c.check(in[0])
}

func (c broadcast) check(x device.Spec) error {
	if c.root < 0 || c.root >= c.group.Size() {
		return fmt.Errorf("no rank %d of %d to be the root", c.root, c.group.Size())
	}
	return sameRows(x)
}

func (c broadcast) Run(x *graph.Exec, out, in []device.Tensor) error {
	if c.group.Rank() == c.root {
		x.Copy(out[0], in[0])
	}
	x.Uses(out, in)
	annotate(c.group, x)
	return c.group.Broadcast(x.Context, out[0], c.root)
}

// reduceTo returns the sum of x over the ranks of g at root, and zeros at the others. Its
// gradient is root's, broadcast.
func reduceTo(b *graph.Builder, g Group, x graph.Value, root int) *Pending {
	return &Pending{
		value: b.Apply(reduce{broadcast{returning{asynchronous{g}}, root}}, x),
		back: func(b *graph.Builder, grad graph.Value) graph.Value {
			return Broadcast(b, g, grad, root).value
		},
	}
}

// reduce is an all-reduce of which only root keeps the result. Sending all terms to root
// would take (Size−1)·n bytes over one link, this takes less than 2n over each.
type reduce struct{ broadcast }

func (reduce) Kind() string { return "all_reduce" }

func (reduce) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(float64(in[0].Len()), in, in)
}

func (r reduce) Outputs(in []device.Spec) ([]device.Spec, error) {
	if err := summable(in[0]); err != nil {
		return nil, err
	}
	return in, r.check(in[0])
}

func (r reduce) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0])
	x.Uses(out, out)
	annotate(r.group, x)
	if err := r.group.AllReduce(x.Context, out[0]); err != nil {
		return err
	}
	if r.group.Rank() != r.root {
		x.Fill(out[0], 0)
	}
	return nil
}
