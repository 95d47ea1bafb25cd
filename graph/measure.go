package graph

import (
	"context"
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/instrument"
)

// Measure runs a Machine whose Store lives on an instrumented device, and
// returns what the instrument saw. It then poisons every byte the run had no
// more use for and leaves the poison on for the runs that follow: they must give
// the same results. The instrument gets a clock from the Machine and nothing else.
func Measure(ctx context.Context, m *Machine, o RunOptions) (instrument.Measurement, error) {
	d, ok := m.dev.(*instrument.Device)
	if !ok {
		return instrument.Measurement{}, fmt.Errorf("graph: Measure needs a Store on an instrumented device, not on %q", m.dev.Name())
	}
	d.Poison(instrument.Measurement{})
	handed := m.program.handed()
	d.Start(m.store.arena, handed...)
	m.Trace(clock{d})
	err := m.Run(ctx, o)
	seen := d.Stop()
	if err != nil {
		return seen, err
	}
	d.Start(m.store.arena, handed...)
	d.Poison(seen)
	return seen, nil
}

// handed are the scratch variables that the nodes of p touch.
func (p *Program) handed() []device.Tensor {
	var list []device.Tensor
	for _, st := range p.scratch {
		list = append(list, st.variable.tensor)
	}
	return list
}

// clock tells the instrument which step the Machine is at.
type clock struct{ device *instrument.Device }

func (c clock) Begin(index int, _ *Step) { c.device.Tick(index) }

func (c clock) Waited(s *Step) { c.device.Complete(s.Index) }

func (clock) End(error)      {}
func (clock) Started(*Step)  {}
func (clock) Finished(*Step) {}
