package parallel

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// trim is the view of the first rows of x [N, …]: what was gathered, without its padding.
type trim struct {
	graph.Pure
	rows int
}

func (trim) Kind() string                                            { return "trim" }
func (trim) Cost([]device.Spec) graph.Cost                           { return graph.Cost{} }
func (trim) Run(*graph.Exec, []device.Tensor, []device.Tensor) error { return nil }
func (t trim) View(in device.Tensor) device.Tensor                   { return in.Slice(0, 0, t.rows) }

func (t trim) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{withRows(in[0], t.rows)}, nil
}

func (trim) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(pad{rows: in[0].Dim(0)}, grad[0])}
}

// pad appends rows of zeros.
type pad struct {
	graph.Pure
	rows int
}

func (pad) Kind() string { return "pad" }

func (p pad) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{withRows(in[0], p.rows)}, nil
}

func (p pad) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(0, in, []device.Spec{withRows(in[0], p.rows)})
}

func (p pad) Run(x *graph.Exec, out, in []device.Tensor) error {
	n := in[0].Dim(0)
	x.Copy(out[0].Slice(0, 0, n), in[0])
	x.Fill(out[0].Slice(0, n, p.rows), 0)
	return nil
}

func withRows(s device.Spec, rows int) device.Spec {
	s = s.WithShape(s.Shape...)
	s.Shape[0] = rows
	return s
}
