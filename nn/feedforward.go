package nn

import "github.com/lethe-go/lethe/graph"

// FeedForward is the gated feed-forward block of Llama, w2(silu(w1(x)) · w3(x)),
// with torchtitan's names: w1 is the gate, w3 goes up and w2 down.
type FeedForward struct {
	Hidden int // width between w1, w3 and w2
	// Init of w1, and OutputInit of w2 and w3, which torchtitan scales down with
	// depth; nil is that of [Linear].
	Init, OutputInit graph.Initializer
}

// Build returns the block of x [..., D]: [..., D].
func (f FeedForward) Build(b *graph.Builder, x graph.Value) graph.Value {
	if v, bad := refuse(b, "feed_forward", x); bad {
		return v
	}
	if f.Hidden <= 0 {
		return b.Fail("feed_forward: %d hidden units: set Hidden to 1 or more", f.Hidden)
	}
	x = b.Enter(x)
	gate := Linear(b.Scope("w1"), x, f.Hidden, f.Init)
	up := Linear(b.Scope("w3"), x, f.Hidden, f.OutputInit)
	return b.Leave(LinearFrom(b.Scope("w2"), b.Apply(swiGLU{}, gate, up), f.Hidden, x.Dim(-1), f.OutputInit))
}
