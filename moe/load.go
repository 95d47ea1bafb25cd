package moe

import (
	"math"
	"strings"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Load is how the tokens of an optimizer step, of all ranks, fell to the experts of a
// layer.
type Load struct {
	// Layer is the scope of the layer, such as "layers.3.moe".
	Layer string
	// Tokens of each expert; one token counts once for each expert it was sent to.
	Tokens []float64
}

// Loads reads what [Balance] has counted in the last optimizer step, layer by layer in
// the order in which they were built. It is empty for a model without experts, and before
// the first step all counts are 0. The Store's memory must be reachable by Go code.
func Loads(s *graph.Store) []Load {
	var list []Load
	for _, v := range s.Variables() {
		layer, ok := strings.CutSuffix(v.Name, "."+tokensPerExpert)
		if !ok {
			continue
		}
		last := s.Variable(layer + "." + lastLoad)
		if last == nil {
			continue
		}
		l := Load{Layer: layer}
		for _, n := range device.Elements[float32](last.Tensor()) {
			l.Tokens = append(l.Tokens, float64(n))
		}
		list = append(list, l)
	}
	return list
}

// MaxViolation is how much more than the mean the busiest expert has to do:
//
//	max(c) / mean(c) − 1
//
// 0 if all have the same. NaN if there are no tokens. (MaxVio of Wang et al. 2024, arXiv
// 2408.15664.)
func (l Load) MaxViolation() float64 {
	most := 0.0
	for _, n := range l.Tokens {
		most = max(most, n)
	}
	return most/(l.total()/float64(len(l.Tokens))) - 1
}

// Entropy of the distribution of tokens over E experts, as a part of its largest value:
//
//	−Σ p_e · ln p_e / ln E
//
// 1 if all have the same, 0 if one has everything. NaN if there are no tokens or there is
// only one expert.
func (l Load) Entropy() float64 {
	total, sum := l.total(), 0.0
	for _, n := range l.Tokens {
		if n > 0 {
			sum -= n / total * math.Log(n/total)
		}
	}
	if total == 0 {
		return math.NaN()
	}
	return sum / math.Log(float64(len(l.Tokens)))
}

func (l Load) total() float64 {
	sum := 0.0
	for _, n := range l.Tokens {
		sum += n
	}
	return sum
}
