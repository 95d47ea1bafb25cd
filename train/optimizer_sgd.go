package train

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// SGD is stochastic gradient descent with momentum, computed as torch.optim.SGD does
// without dampening; weight decay × parameter is added to the gradient. Of each
// parameter it keeps momentum_buffer, and nothing where Momentum is 0.
type SGD struct {
	Momentum, WeightDecay float64
	// Nesterov looks ahead along the momentum (Sutskever et al. 2013); it means nothing
	// without momentum.
	Nesterov bool
}

// Name is "SGD".
func (SGD) Name() string { return "SGD" }

// Apply implements [Optimizer].
func (o SGD) Apply(b *graph.Builder, u Update) {
	op := sgd{momentum: o.Momentum, l2: o.WeightDecay, nesterov: o.Nesterov}
	if o.Momentum == 0 {
		u.apply(b, op)
		return
	}
	u.apply(b, op, u.State(b, momentumKind))
}

// momentumKind is what SGD and Muon call their state, as PyTorch does.
const momentumKind = "momentum_buffer"

// sgd updates the parameter and, if there is one, its momentum.
type sgd struct {
	graph.Pure
	momentum, l2 float64
	nesterov     bool
}

func (sgd) Kind() string { return "sgd" }

func (o sgd) Mutates() []int {
	if o.states() == 0 {
		return []int{0}
	}
	return []int{0, 1}
}

func (o sgd) states() int {
	if o.momentum == 0 {
		return 0
	}
	return 1
}

func (o sgd) Outputs(in []device.Spec) ([]device.Spec, error) { return updateOutputs(in, o.states()) }

func (o sgd) Cost(in []device.Spec) graph.Cost {
	flops := 5.0 // clip, decay, step
	if o.momentum != 0 {
		flops += 2
		if o.nesterov {
			flops += 2
		}
	}
	return updateCost(flops*float64(in[0].Len()), in, o.states())
}

func (o sgd) Run(x *graph.Exec, _, in []device.Tensor) error {
	u := inputsOfUpdate(in, o.states())
	var momentum device.Tensor
	if o.momentum != 0 {
		momentum = u.states[0]
	}
	x.SGD(u.param, momentum, u.gradient, u.factor, device.SGD{
		LearningRate: u.rate, Momentum: o.momentum, L2: o.l2, Nesterov: o.nesterov,
	})
	return nil
}
