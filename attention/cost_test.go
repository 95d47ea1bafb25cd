package attention_test

import (
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

func TestFLOPs(t *testing.T) {
	const batch, tokens, heads, queryWidth, width = 2, 6, 4, 8, 5
	b := graph.New(newStore(t))
	q := b.Parameter("q", device.Float32, graph.Zeros, batch, tokens, heads, queryWidth)
	k := b.Parameter("k", device.Float32, graph.Zeros, batch, tokens, 2, queryWidth)
	v := b.Parameter("v", device.Float32, graph.Zeros, batch, tokens, 2, width)
	b.AddLoss("loss", graph.Sum(attention.Fused(b, q, k, v, attention.Mask{Causal: true}, 0)))
	b.Output("dq", b.Backward(q)[0])
	p := newMachine(t, b).Program()
	const all, visible = tokens * tokens, tokens * (tokens + 1) / 2
	if got, want := p.ModelFLOPs(), 3.*2*batch*heads*all*(queryWidth+width); got != want {
		t.Errorf("%v model FLOPs, want %v", got, want)
	}
	executed := p.Cost(func(s *graph.Step) bool { return s.Node.Kind == "attention" || s.Node.Kind == "attention_backward" }).ExecutedFLOPs
	if want := 2. * batch * heads * visible * (4*queryWidth + 3*width); executed != want {
		t.Errorf("%v executed FLOPs, want %v", executed, want)
	}
}
