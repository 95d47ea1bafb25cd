package generate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/philox"
)

// Sampling says how a token is chosen from the logits. The zero value is greedy: the
// largest logit, and of equal ones the lowest id.
//
// The order is that of Hugging Face: logits are divided by Temperature; the TopK largest
// stay; of these, the fewest whose probabilities sum to TopP or more, largest first; one
// is drawn in proportion to its probability. Of equal logits the lower id counts as
// larger, so that exactly TopK stay.
type Sampling struct {
	// Temperature, at least 0; 0 is greedy.
	Temperature float64
	// TopK is the number of candidates; 0 means all.
	TopK int
	// TopP is the probability that the candidates must reach, in [0, 1]; 0 and 1 mean
	// all. (Holtzman et al. 2020, nucleus sampling.)
	TopP float64
	// Seed of the draws.
	Seed uint64
}

// Validate says what is impossible about s.
func (s Sampling) Validate() error {
	// Comparisons are written so that NaN fails them.
	switch {
	case !(s.Temperature >= 0 && s.Temperature <= math.MaxFloat64):
		return fmt.Errorf("generate: temperature: must be 0 or more and finite: %v; set 0 for the likeliest token", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("generate: top_k: must be 0 or more: %d; set 0 for all tokens", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("generate: top_p: must be within [0, 1]: %v; set 1 for all tokens", s.TopP)
	}
	return nil
}

// sampler chooses tokens. It keeps its memory, so that a choice allocates nothing.
type sampler struct {
	Sampling
	key        uint64
	candidates []candidate
}

// candidate is a token with its logit, which becomes a weight.
type candidate struct {
	id     int32
	weight float64
}

func newSampler(s Sampling, vocab int) *sampler {
	return &sampler{Sampling: s, key: philox.Key(s.Seed, "generate", 0), candidates: make([]candidate, 0, vocab)}
}

// choose returns the token for a place in the sequence.
func (s *sampler) choose(logits device.Tensor, position int) (int32, error) {
	s.candidates = s.candidates[:0]
	if logits.DType() == device.Float32 {
		s.candidates = appendCandidates(s.candidates, device.Elements[float32](logits))
	} else {
		s.candidates = appendCandidates(s.candidates, device.Elements[float64](logits))
	}
	best, err := s.best()
	if err != nil || s.Temperature == 0 {
		return best.id, err
	}
	if s.sorted() {
		slices.SortFunc(s.candidates, byWeight)
	}
	if s.TopK > 0 {
		s.candidates = s.candidates[:min(s.TopK, len(s.candidates))]
	}
	sum := s.soften(best.weight)
	if s.TopP > 0 && s.TopP < 1 {
		sum = s.nucleus(sum)
	}
	u := philox.Float64(philox.Uint64(s.key, uint64(position), 0, 0))
	return s.draw(u * sum), nil
}

func appendCandidates[T float32 | float64](to []candidate, logits []T) []candidate {
	for id, l := range logits {
		to = append(to, candidate{int32(id), float64(l)})
	}
	return to
}

// best is the largest logit, and of equal ones that of the lowest id.
func (s *sampler) best() (candidate, error) {
	best := candidate{-1, math.Inf(-1)}
	for _, c := range s.candidates {
		switch {
		case math.IsNaN(c.weight) || math.IsInf(c.weight, 1):
			return best, fmt.Errorf("the logit of token %d is %v: the parameters are broken; use an earlier state", c.id, c.weight)
		case c.weight > best.weight:
			best = c
		}
	}
	if best.id < 0 {
		return best, errors.New("the logits of all tokens are -Inf: there is nothing to choose from")
	}
	return best, nil
}

// sorted reports whether some candidates fall away, for which they must be in order.
func (s *sampler) sorted() bool {
	return s.TopK > 0 && s.TopK < len(s.candidates) || s.TopP > 0 && s.TopP < 1
}

func byWeight(a, b candidate) int {
	if c := cmp.Compare(b.weight, a.weight); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// soften turns logits into weights exp((logit − most) / Temperature) and returns their sum.
func (s *sampler) soften(most float64) (sum float64) {
	for i := range s.candidates {
		w := &s.candidates[i].weight
		*w = math.Exp((*w - most) / s.Temperature)
		sum += *w
	}
	return sum
}

// nucleus keeps the first candidates that reach TopP of the sum, and returns theirs.
func (s *sampler) nucleus(sum float64) (kept float64) {
	for i, c := range s.candidates {
		kept += c.weight
		if kept >= s.TopP*sum {
			s.candidates = s.candidates[:i+1]
			break
		}
	}
	return kept
}

// draw returns the candidate in whose part of the sum a point lies.
func (s *sampler) draw(point float64) int32 {
	last := int32(-1)
	for _, c := range s.candidates {
		if c.weight == 0 {
			continue
		}
		if last = c.id; point < c.weight {
			break
		}
		point -= c.weight
	}
	return last
}
