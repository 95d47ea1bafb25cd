package train

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// AdamW is Adam with decoupled weight decay, computed as torch.optim.AdamW does
// (Loshchilov, Hutter 2019). Of each parameter it keeps exp_avg and exp_avg_sq.
type AdamW struct{ Beta1, Beta2, Eps, WeightDecay float64 }

// Name is "AdamW".
func (AdamW) Name() string { return "AdamW" }

// Apply implements [Optimizer].
func (o AdamW) Apply(b *graph.Builder, u Update) {
	u.adam(b, adam{kind: "adamw", beta1: o.Beta1, beta2: o.Beta2, eps: o.Eps, weightDecay: o.WeightDecay})
}

// Adam adds weight decay × parameter to the gradient, computed as torch.optim.Adam
// does (Kingma, Ba 2015). Of each parameter it keeps exp_avg and exp_avg_sq.
type Adam struct{ Beta1, Beta2, Eps, WeightDecay float64 }

// Name is "Adam".
func (Adam) Name() string { return "Adam" }

// Apply implements [Optimizer].
func (o Adam) Apply(b *graph.Builder, u Update) {
	u.adam(b, adam{kind: "adam", beta1: o.Beta1, beta2: o.Beta2, eps: o.Eps, l2: o.WeightDecay})
}

func (u Update) adam(b *graph.Builder, op adam) {
	u.apply(b, op, u.State(b, "exp_avg"), u.State(b, "exp_avg_sq"))
}

// adam updates parameter, mean and square. The time t of the bias correction is the
// optimizer step.
type adam struct {
	graph.Pure
	kind                               string
	beta1, beta2, eps, weightDecay, l2 float64
}

func (o adam) Kind() string { return o.kind }
func (adam) Mutates() []int { return []int{0, 1, 2} }

func (adam) Outputs(in []device.Spec) ([]device.Spec, error) { return updateOutputs(in, 2) }

func (o adam) Cost(in []device.Spec) graph.Cost {
	flops := 15.0
	if o.l2 != 0 {
		flops += 2
	}
	return updateCost(flops*float64(in[0].Len()), in, 2)
}

func (o adam) Run(x *graph.Exec, _, in []device.Tensor) error {
	u := inputsOfUpdate(in, 2)
	x.AdamW(u.param, u.states[0], u.states[1], u.gradient, u.factor, device.AdamW{
		LearningRate: u.rate, Beta1: o.beta1, Beta2: o.beta2, Epsilon: o.eps,
		WeightDecay: o.weightDecay, L2: o.l2, Step: int(x.Step),
	})
	return nil
}
