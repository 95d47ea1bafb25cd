package collective

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Pending is the result of a collective that is on its way. Its memory may not be
// read before Wait, so it is no graph.Value.
type Pending struct {
	value graph.Value
	// back starts the collective that brings a gradient back.
	back   func(b *graph.Builder, grad graph.Value) graph.Value
	waited graph.Value
}

// Wait returns the result. The compute lane waits just before the first op that
// reads it, so all that is built in between overlaps with the collective. A Wait
// follows its collective: it is rerun if and only if the collective is.
//
// In backward the gradient sets out as soon as it is there and is waited for where the
// collective was built, so that the same work overlaps with the way back.
func (p *Pending) Wait() graph.Value {
	if p.waited.IsNone() {
		p.waited = graph.At(p.value).Apply(wait{back: p.back}, p.value)
	}
	return p.waited
}

// wait is the view of an asynchronous result that may be read.
type wait struct {
	graph.Pure
	back func(b *graph.Builder, grad graph.Value) graph.Value
}

func (wait) Kind() string                                            { return "wait" }
func (wait) Waits()                                                  {}
func (wait) Cost([]device.Spec) graph.Cost                           { return graph.Cost{} }
func (wait) Outputs(in []device.Spec) ([]device.Spec, error)         { return in, nil }
func (wait) View(in device.Tensor) device.Tensor                     { return in }
func (wait) Run(*graph.Exec, []device.Tensor, []device.Tensor) error { return nil }

func (w wait) Gradient(b *graph.Builder, _, _, grad []graph.Value) []graph.Value {
	if w.back == nil {
		return []graph.Value{graph.None}
	}
	return []graph.Value{w.back(b, grad[0])}
}

// arrived waits for a gradient that wait.Gradient sent off.
func arrived(grad graph.Value) graph.Value { return (&Pending{value: grad}).Wait() }

// laneOf is the lane of a group: collectives of one group run in order.
func laneOf(g Group) graph.Lane { return graph.Lane("collective " + g.Name()) }

// asynchronous is what all collectives that return a Pending share.
type asynchronous struct {
	group Group
}

func (asynchronous) Workspace([]device.Spec, int) int64 { return 0 }
func (asynchronous) Effects() graph.Effects             { return graph.Collective }
func (a asynchronous) Lane() graph.Lane                 { return laneOf(a.group) }

// returning is what those share that have one tensor and bring its gradient back by
// Pending.back.
type returning struct{ asynchronous }

func (returning) Gradient(_ *graph.Builder, _, _, grad []graph.Value) []graph.Value {
	return []graph.Value{arrived(grad[0])}
}
