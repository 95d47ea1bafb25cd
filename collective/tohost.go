package collective

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// ToHost returns a copy of x on the host, where ops may read it while they are
// enqueued: the host waits for the device here. By default the copy is kept for the
// backward pass, so that a rerun never waits again.
func ToHost(x graph.Value) graph.Value { return graph.At(x).Apply(toHost{}, x) }

type toHost struct{ graph.Pure }

func (toHost) Kind() string                     { return "to_host" }
func (toHost) Effects() graph.Effects           { return graph.HostSync }
func (toHost) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in, in) }

func (toHost) Outputs(in []device.Spec) ([]device.Spec, error) {
	out := in[0]
	out.Place = device.OnHost
	return []device.Spec{out}, nil
}

func (toHost) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0])
	return nil
}
