package train

import (
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// microbatchMachine is a Machine over a Program that eats microbatches, with the
// host memory that feeds it.
type microbatchMachine struct {
	*graph.Machine
	tokens, labels, positions, start []int32
	scale                            device.Tensor
	losses                           []string
	dynamic                          bool // needs memory according to row counts
}

func newMicrobatchMachine(p *graph.Program, check graph.CheckLevel) (*microbatchMachine, error) {
	machine, err := graph.NewMachine(p)
	if err != nil {
		return nil, err
	}
	if err := machine.Check(check); err != nil {
		machine.Close()
		return nil, err
	}
	ids := func(name string) []int32 { return device.Elements[int32](machine.Input(name)) }
	m := &microbatchMachine{
		Machine: machine,
		tokens:  ids("tokens"), labels: ids("labels"), positions: ids("positions"), start: ids("document_start"),
		scale:   machine.Input("scale"),
		dynamic: len(machine.Counts()) > 0,
	}
	for _, l := range p.Graph.Losses {
		m.losses = append(m.losses, l.Name)
	}
	return m, nil
}

// feed copies a batch and the factor on its losses into the inputs.
func (m *microbatchMachine) feed(b *data.Batch, scale float64) {
	copy(m.tokens, b.Tokens)
	copy(m.labels, b.Labels)
	copy(m.positions, b.Positions)
	copy(m.start, b.DocumentStart)
	if m.scale.DType() == device.Float32 {
		device.Elements[float32](m.scale)[0] = float32(scale)
	} else {
		device.Elements[float64](m.scale)[0] = scale
	}
}

// loss is the sum of all losses of the last run.
func (m *microbatchMachine) loss() float64 {
	var sum float64
	for _, name := range m.losses {
		sum += m.Scalar(name)
	}
	return sum
}
