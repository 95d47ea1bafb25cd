package collective

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// AllReduceStates replaces parameters or states by their sums over the ranks of g, on the
// group's lane, beginning as soon as nothing that was built before writes or reads them.
// Several are sent as one: they are copied to scratch memory and back for that. Nothing may
// touch them until the result, which is empty, has been waited for: see [Join].
func AllReduceStates(b *graph.Builder, g Group, states ...graph.Value) *Pending {
	return &Pending{value: b.Apply(allReduceStates{asynchronous{g}, len(states)}, states...)}
}

type allReduceStates struct {
	asynchronous
	states int
}

func (allReduceStates) Kind() string { return "all_reduce" }

func (a allReduceStates) Mutates() []int {
	all := make([]int, a.states)
	for i := range all {
		all[i] = i
	}
	return all
}

func (allReduceStates) Cost(in []device.Spec) graph.Cost {
	var sums float64
	for _, s := range in {
		sums += float64(s.Len())
	}
	return graph.Traffic(sums, in, in)
}

func (allReduceStates) Outputs(in []device.Spec) ([]device.Spec, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("nothing to add up")
	}
	for _, s := range in {
		if s.DType != in[0].DType || s.Rows != 0 {
			return nil, fmt.Errorf("want states of one dtype and of the same shapes on all ranks, have %v × %v", in[0], s)
		}
	}
	return graph.TokenOutput(), nil
}

func (allReduceStates) Workspace(in []device.Spec, _ int) int64 {
	if len(in) == 1 {
		return 0
	}
	var sum int64
	for _, s := range in {
		sum += s.Bytes()
	}
	return sum
}

func (a allReduceStates) Run(x *graph.Exec, _, in []device.Tensor) error {
	if len(in) == 1 {
		x.Uses(in, in)
		annotate(a.group, x)
		return a.group.AllReduce(x.Context, in[0])
	}
	elements, bytes := 0, int64(0)
	for _, t := range in {
		x.Copy(x.ScratchLike(bytes, t), t)
		elements, bytes = elements+t.Len(), bytes+t.Bytes()
	}
	annotate(a.group, x)
	if err := a.group.AllReduce(x.Context, x.Scratch(0, in[0].DType(), elements)); err != nil {
		return err
	}
	bytes = 0
	for _, t := range in {
		x.Copy(t, x.ScratchLike(bytes, t))
		bytes += t.Bytes()
	}
	return nil
}

// Join makes the Program wait for the results of collectives where it is called.
func Join(b *graph.Builder, pending ...*Pending) {
	var arrived []graph.Value
	for _, p := range pending {
		arrived = append(arrived, p.Wait())
	}
	b.Apply(join{}, arrived...)
}

type join struct{ graph.Pure }

func (join) Kind() string                                            { return "join" }
func (join) Effects() graph.Effects                                  { return graph.SideEffect }
func (join) Cost([]device.Spec) graph.Cost                           { return graph.Cost{} }
func (join) Outputs([]device.Spec) ([]device.Spec, error)            { return graph.TokenOutput(), nil }
func (join) Run(*graph.Exec, []device.Tensor, []device.Tensor) error { return nil }
