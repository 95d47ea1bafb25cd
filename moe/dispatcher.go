package moe

import (
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Dispatcher brings tokens to the ranks that hold their experts and back.
type Dispatcher interface {
	// Dispatch brings the rows of x [T, D] to their experts. between builds what can
	// run while they travel; it is called once.
	Dispatch(b *graph.Builder, x graph.Value, r Routing, experts int, between func()) Dispatched
}

// Dispatched are the rows of this rank's experts.
type Dispatched struct {
	// Rows [n, D], grouped by expert, and Counts int32 [local experts].
	Rows, Counts graph.Value
	// Load int32 [E] counts this rank's tokens by expert.
	Load graph.Value
	// Return brings the experts' results [n, D] back, weighs and sums them: [T, D].
	Return func(b *graph.Builder, y graph.Value) graph.Value
}

// Local keeps all experts on this rank: rows are only permuted.
type Local struct{}

// Dispatch sorts the rows by expert.
func (Local) Dispatch(b *graph.Builder, x graph.Value, r Routing, experts int, between func()) Dispatched {
	p, counts := sortByExpert(b, r.IDs, experts)
	rows := gatherRows(b, x, p, r.IDs.Dim(1))
	between()
	return Dispatched{Rows: rows, Counts: counts, Load: counts, Return: func(b *graph.Builder, y graph.Value) graph.Value {
		return combineRows(b, y, p, r.Weights)
	}}
}

// AllToAll spreads the experts over the ranks of a group: rank r holds E/Size of them,
// from expert r·E/Size on.
type AllToAll struct{ Group collective.Group }

// Dispatch exchanges the counts, then the rows. Only the split sizes go to the host.
func (a AllToAll) Dispatch(b *graph.Builder, x graph.Value, r Routing, experts int, between func()) Dispatched {
	g := a.Group
	if experts%g.Size() != 0 {
		v := b.Fail("all_to_all: %d experts over %d ranks: want a multiple", experts, g.Size())
		return Dispatched{v, v, v, func(*graph.Builder, graph.Value) graph.Value { return v }}
	}
	local, copies := experts/g.Size(), r.IDs.Dim(1)
	p, load := sortByExpert(b, r.IDs, experts)
	sent := graph.Reshape(load, g.Size(), local)
	arriving := collective.ExchangeCounts(b, g, sent)
	rows := gatherRows(b, x, p, copies)
	received := arriving.Wait()
	send, receive := collective.ToHost(sent), collective.ToHost(received)

	// A token goes to a rank at most as often as that has experts.
	bound := g.Size() * x.Dim(0) * min(copies, local)
	live := b.Rows("received", bound)
	travelling := collective.AllToAll(b, g, rows, receive, send, live, bound)
	between()
	major, counts := expertMajor(b, received, receive, live, bound)
	rows = gatherRows(b, travelling.Wait(), major, 1)
	return Dispatched{Rows: rows, Counts: counts, Load: load, Return: func(b *graph.Builder, y graph.Value) graph.Value {
		y = gatherRows(b, y, major.inverse(), 1)
		back := collective.AllToAll(b, g, y, send, receive, 0, p.order.Dim(0))
		return combineRows(b, back.Wait(), p, r.Weights)
	}}
}

// expertMajor gives the permutation from rows that arrived rank by rank to rows
// grouped by expert, and the rows of each expert: counts int32 [ranks, experts] says
// what arrived, onHost is its copy there.
func expertMajor(b *graph.Builder, counts, onHost graph.Value, live device.Rows, bound int) (permutation, graph.Value) {
	out := b.ApplyAll(expertMajorOrder{live, bound}, counts, onHost)
	return permutation{out[0], out[1]}, out[2]
}

type expertMajorOrder struct {
	live  device.Rows
	bound int
}

func (expertMajorOrder) Kind() string                       { return "expert_major" }
func (expertMajorOrder) Workspace([]device.Spec, int) int64 { return 0 }
func (expertMajorOrder) Effects() graph.Effects             { return 0 }
func (expertMajorOrder) Cost(in []device.Spec) graph.Cost   { return graph.Traffic(0, in, in) }

func (e expertMajorOrder) Outputs(in []device.Spec) ([]device.Spec, error) {
	rows := device.NewSpec(device.Int32, e.bound)
	rows.Rows = e.live
	return []device.Spec{rows, rows, device.NewSpec(device.Int32, in[0].Shape[1])}, nil
}

// LiveRows is the number of rows that arrived.
func (expertMajorOrder) LiveRows(in []device.Tensor) (int, error) {
	n := 0
	for _, c := range device.Elements[int32](in[1]) {
		n += int(c)
	}
	return n, nil
}

func (expertMajorOrder) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.ExpertMajor(out[0], out[1], out[2], in[0])
	return nil
}
