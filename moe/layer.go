package moe

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// Layer is a mixture-of-experts layer.
type Layer struct {
	Router Router
	// Hidden is F, the hidden width of an expert.
	Hidden int
	// Shared experts see every token: one network with Hidden·Shared hidden units, added
	// to the routed result.
	Shared int
	// Dispatcher of tokens; nil is Local.
	Dispatcher Dispatcher
	// Count adds the layer's load to the state `tokens_per_expert` once per forward. Set
	// it in training and not in evaluation.
	Count bool
	// Init of w1, OutputInit of w2 and w3, of routed and shared experts; nil is
	// torchtitan's.
	Init, OutputInit graph.Initializer
}

// Build adds the layer for x [..., D] and returns a value of the same shape. Scopes are
// router, experts and shared_experts.
func (l Layer) Build(b *graph.Builder, x graph.Value) graph.Value {
	x = b.Enter(x)
	shape := x.Shape()
	if len(shape) < 2 {
		return b.Fail("moe: want x [..., D], have %v", x.Spec())
	}
	if len(shape) > 2 {
		x = graph.Reshape(x, -1, shape[len(shape)-1])
	}
	dispatcher := l.Dispatcher
	if dispatcher == nil {
		dispatcher = Local{}
	}
	routing := l.Router.Build(b.Scope("router"), x)
	var shared graph.Value
	d := dispatcher.Dispatch(b, x, routing, l.Router.Experts, func() {
		if l.Shared > 0 {
			ffn := nn.FeedForward{Hidden: l.Hidden * l.Shared, Init: l.Init, OutputInit: l.OutputInit}
			shared = ffn.Build(b.Scope("shared_experts"), x)
		}
	})
	if l.Count {
		countLoad(b, d.Load)
	}
	experts := Experts{Experts: l.Router.Experts, Hidden: l.Hidden, Init: l.Init, OutputInit: l.OutputInit}
	out := d.Return(b, experts.Build(b.Scope("experts"), d.Rows, d.Counts))
	if !shared.IsNone() {
		out = graph.Add(out, shared)
	}
	if len(shape) > 2 {
		out = graph.Reshape(out, shape...)
	}
	return b.Leave(out)
}

// countLoad adds load to the tokens of the optimizer step. It takes effect at the end
// of the program, once, whatever is rerun.
func countLoad(b *graph.Builder, load graph.Value) {
	count := b.State(tokensPerExpert, device.Float32, graph.Zeros, load.Dim(0))
	b.Update(count, graph.Add(count, b.Apply(toFloat{}, load)))
}

// toFloat converts counts, which float32 holds exactly up to 2²⁴ tokens an expert.
type toFloat struct{ graph.Pure }

func (toFloat) Kind() string                     { return "convert" }
func (toFloat) Cost(in []device.Spec) graph.Cost { return graph.Traffic(0, in, in) }
func (toFloat) Outputs(in []device.Spec) ([]device.Spec, error) {
	out := in[0]
	out.DType = device.Float32
	return []device.Spec{out}, nil
}
func (toFloat) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0])
	return nil
}
