package generate

import (
	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/graph"
)

// Model predicts the next token. It is asked to build itself once for each Program, on
// one Store, and must name its parameters alike each time.
type Model interface {
	// Vocab is the number of token ids.
	Vocab() int

	// Logits adds the model to b and returns the logits of the token that follows one
	// of the tokens: float32 or float64 [1, Vocab].
	Logits(b *graph.Builder, in Inputs) graph.Value
}

// Inputs of a model for T tokens of one sequence.
type Inputs struct {
	// Tokens are the ids and Positions their places in the sequence: int32 [1, T].
	Tokens, Positions graph.Value
	// Row is the column of the token whose successor is wanted: an int32 scalar on the
	// host. What stands behind it is padding, which a causal model does not see.
	Row graph.Value
	// Cache holds the tokens before these; nil if the sequence begins with them.
	Cache *attention.Cache
}
