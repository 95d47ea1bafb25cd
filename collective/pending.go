package collective

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Pending is the result of a collective that is on its way. Its memory may not be
// read before Wait, so it is no graph.Value.
type Pending struct{ value graph.Value }

// Wait returns the result. The compute lane waits here; what is built between the
// collective and its Wait overlaps with it. A Wait always follows its collective:
// it is rerun if and only if the collective is.
func (p Pending) Wait() graph.Value {
	return graph.At(p.value).Apply(wait{}, p.value)
}

// wait is the view of an asynchronous result that may be read.
type wait struct{ graph.Pure }

func (wait) Kind() string                                            { return "wait" }
func (wait) Waits()                                                  {}
func (wait) Cost([]device.Spec) graph.Cost                           { return graph.Cost{} }
func (wait) Outputs(in []device.Spec) ([]device.Spec, error)         { return in, nil }
func (wait) View(in device.Tensor) device.Tensor                     { return in }
func (wait) Run(*graph.Exec, []device.Tensor, []device.Tensor) error { return nil }

func (wait) Gradient(_ *graph.Builder, _, _, grad []graph.Value) []graph.Value { return grad }

// laneOf is the lane of a group: collectives of one group run in order.
func laneOf(g Group) graph.Lane { return graph.Lane("collective " + g.Name()) }

// asynchronous is what all collectives that return a Pending share.
type asynchronous struct {
	group Group
}

func (asynchronous) Workspace([]device.Spec, int) int64 { return 0 }
func (asynchronous) Effects() graph.Effects             { return graph.Collective }
func (a asynchronous) Lane() graph.Lane                 { return laneOf(a.group) }
