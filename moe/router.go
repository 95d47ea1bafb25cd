package moe

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// Score turns the gate's logits into scores.
type Score uint8

const (
	// Softmax over the experts.
	Softmax Score = iota
	// Sigmoid of each expert by itself.
	Sigmoid
)

// ParseScore is the inverse of String.
func ParseScore(name string) (Score, error) {
	switch name {
	case "softmax":
		return Softmax, nil
	case "sigmoid":
		return Sigmoid, nil
	}
	return 0, fmt.Errorf("moe: unknown score function %q: want softmax or sigmoid", name)
}

func (s Score) String() string { return [...]string{"softmax", "sigmoid"}[s] }

// Router chooses TopK of Experts for each token.
type Router struct {
	Experts, TopK int
	Score         Score
	// Normalize divides the weights of a token by their sum + 1e-20 (route_norm).
	Normalize bool
	// Scale multiplies the weights (route_scale); 0 means 1.
	Scale float64
	// Groups > 1 limits a token to the LimitedGroups groups of experts whose two
	// best scores sum highest.
	Groups, LimitedGroups int
	// Bias adds the state `expert_bias` to the scores for the choice only; weights are
	// made of unbiased scores. The optimizer step moves it, see [Balance].
	Bias bool
	// ForceBalance ignores the scores for the choice: token t takes the experts
	// t·K … t·K + K−1 modulo E. For experiments with even loads.
	ForceBalance bool
	// Init of the gate; nil is torchtitan's.
	Init graph.Initializer
}

// Routing is what a router decides: for each token the ids of its experts (int32
// [T, K], best first) and their weights ([T, K]).
type Routing struct{ IDs, Weights graph.Value }

// Build routes x [T, D]. The parameter is `gate.weight` [E, D].
func (r Router) Build(b *graph.Builder, x graph.Value) Routing {
	if err := r.check(); err != nil {
		v := b.Fail("%v", err)
		return Routing{v, v}
	}
	logits := nn.Linear(b.Scope("gate"), x, r.Experts, r.Init)
	scores := r.scores(b, logits)
	ids := r.choose(b, scores)
	weights := b.Apply(gatherColumns{}, scores, ids)
	if r.Normalize {
		weights = b.Apply(routeNorm{}, weights)
	}
	if r.Scale != 0 && r.Scale != 1 {
		weights = nn.Scale(weights, b.Full(r.Scale, weights.Spec().DType))
	}
	return Routing{ids, weights}
}

func (r Router) check() error {
	switch {
	case r.Experts < 1 || r.TopK < 1 || r.TopK > r.Experts:
		return fmt.Errorf("router: top %d of %d experts: want 1 ≤ top k ≤ experts", r.TopK, r.Experts)
	case r.Groups > 1 && (r.Experts%r.Groups != 0 || r.Experts/r.Groups < 2):
		return fmt.Errorf("router: %d experts in %d groups: want equal groups of 2 or more", r.Experts, r.Groups)
	case r.Groups > 1 && (r.LimitedGroups < 1 || r.LimitedGroups > r.Groups || r.LimitedGroups*(r.Experts/r.Groups) < r.TopK):
		return fmt.Errorf("router: top %d in %d of %d groups of %d experts: there are too few to choose from", r.TopK, r.LimitedGroups, r.Groups, r.Experts/r.Groups)
	}
	return nil
}

func (r Router) scores(b *graph.Builder, logits graph.Value) graph.Value {
	if r.Score == Sigmoid {
		return b.Apply(sigmoid{}, logits)
	}
	return nn.Softmax(logits)
}

func (r Router) choose(b *graph.Builder, scores graph.Value) graph.Value {
	if r.ForceBalance {
		return r.balanced(b, scores.Dim(0))
	}
	op := topK{k: r.TopK, groups: max(r.Groups, 1), limited: max(r.LimitedGroups, 1)}
	if r.Bias {
		return b.Apply(op, scores, b.State("expert_bias", scores.Spec().DType, graph.Zeros, r.Experts))
	}
	return b.Apply(op, scores)
}

// balanced is a table of round-robin ids.
func (r Router) balanced(b *graph.Builder, tokens int) graph.Value {
	name := fmt.Sprintf("balanced_ids_%d_%d_%d", tokens, r.TopK, r.Experts)
	return b.Table(name, func(b *graph.Builder) graph.Value {
		fill := graph.Computed(func(host device.Tensor) {
			for i := range device.Elements[int32](host) {
				device.Elements[int32](host)[i] = int32(i % r.Experts)
			}
		})
		return b.Constant("ids", device.Int32, fill, tokens, r.TopK)
	})
}
