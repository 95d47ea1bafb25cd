package train

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Optimizer changes parameters by their gradients. [AdamW], [Adam], [SGD] and [Muon]
// are those that a config can name.
type Optimizer interface {
	// Name is what configs and reports call it, such as "AdamW".
	Name() string

	// Apply adds to b the nodes that change one parameter: ops that are a
	// graph.Mutator of it and of what u.State returns, or b.Assign. It is called once
	// for each parameter when the update Program is built, with a scope of the
	// parameter's own; it says what it cannot do by b.Fail. The nodes run once in each
	// optimizer step, after loss and gradient norm were found finite; a step counts
	// from 1 (graph.Exec.Step).
	Apply(b *graph.Builder, u Update)
}

// Update is what an Optimizer works with to change one parameter.
type Update struct {
	// Parameter is the variable: its name, the Spec of this rank's part and the
	// Global shape of the whole. It is divided along its first dimension: experts
	// [experts, …] with experts on several ranks, everything if parameters are sharded.
	Parameter *graph.Variable
	// Value stands for the parameter, Gradient for its gradient of the whole batch,
	// with the same spec.
	Value, Gradient graph.Value
	// ClipFactor is a scalar of the trained dtype that the gradient is to be
	// multiplied with. It is graph.None where training.max_norm is 0.
	ClipFactor graph.Value
	// LearningRate of the step, a float64 scalar on the host: an op may read it as it
	// runs.
	LearningRate graph.Value
}

// State returns a tensor like the parameter that lasts from step to step, zero at
// first. It is saved with the state of the run as "optimizer.KIND.PARAMETER".
func (u Update) State(b *graph.Builder, kind string) graph.Value {
	return b.StateLike("optimizer."+kind+".", u.Parameter, graph.Zeros)
}

// apply adds op with the inputs parameter, states, gradient, learning rate and, if the
// gradient is clipped, its factor.
func (u Update) apply(b *graph.Builder, op graph.Op, states ...graph.Value) {
	in := append([]graph.Value{u.Value}, states...)
	in = append(in, u.Gradient, u.LearningRate)
	if !u.ClipFactor.IsNone() {
		in = append(in, u.ClipFactor)
	}
	b.Apply(op, in...)
}

// updateInputs are the inputs of an op that Update.apply added.
type updateInputs struct {
	param, gradient, factor device.Tensor // factor is the zero Tensor without clipping
	states                  []device.Tensor
	rate                    float64
}

func inputsOfUpdate(in []device.Tensor, states int) updateInputs {
	u := updateInputs{param: in[0], states: in[1 : 1+states], gradient: in[1+states], rate: device.Elements[float64](in[2+states])[0]}
	if len(in) > 3+states {
		u.factor = in[3+states]
	}
	return u
}

// updateOutputs are those of an op that Update.apply added.
func updateOutputs(in []device.Spec, states int) ([]device.Spec, error) {
	for _, s := range in[1 : 2+states] {
		if !s.Equal(in[0]) {
			return nil, fmt.Errorf("parameter, moments and gradient differ: %v × %v", in[0], s)
		}
	}
	return graph.TokenOutput(), nil
}

// updateCost is that of an op that Update.apply added: it reads parameter, states and
// gradient and writes parameter and states.
func updateCost(flops float64, in []device.Spec, states int) graph.Cost {
	return graph.Traffic(flops, in[:2+states], in[:1+states])
}
