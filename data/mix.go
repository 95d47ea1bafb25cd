package data

import (
	"fmt"
	"math"
)

// Weighted is a source and its share of a mixture's tokens, relative to the other
// weights.
type Weighted struct {
	Source Source
	Weight float64
}

// checkWeights refuses what is not a share.
func checkWeights(parts []Weighted) error {
	if len(parts) == 0 {
		return fmt.Errorf("%w: a mixture needs at least one source", ErrNoDocument)
	}
	sum := 0.0
	for _, p := range parts {
		if !(p.Weight > 0 && p.Weight <= math.MaxFloat64) {
			return fmt.Errorf("the weight of %s must be positive and finite: %v", p.Source.Name(), p.Weight)
		}
		sum += p.Weight
	}
	for _, p := range parts {
		if !(p.Weight/sum >= minShare) {
			return fmt.Errorf("the weight of %s is %v of a sum of %v: a share below %v is never read", p.Source.Name(), p.Weight, sum, minShare)
		}
	}
	return nil
}

// minShare keeps tokens ÷ weight within what a float64 tells apart.
const minShare = 1e-9

// turn returns the source of the next document: the one that has given the fewest
// tokens for its weight, of equals the first. Documents have many lengths, so this is
// stride scheduling (Waldspurger and Weihl, 1995) with the tokens of a document as its
// stride.
//
// With shares w that sum to 1 and longest documents of L tokens, source i has then
// given, of N tokens in whole documents, at most w[i]·N + (1−w[i])·L[i] and at least
// w[i]·N − w[i]·Σ(j≠i) L[j]. For when source i was chosen last it was not ahead of any
// other, so tokens[i]/w[i] is never more than L[i]/w[i] ahead of any other.
func (s *stream) turn() int {
	best, least := 0, math.Inf(1)
	for i, p := range s.at.parts {
		if t := float64(p.Tokens) / s.parts[i].Weight; t < least {
			best, least = i, t
		}
	}
	return best
}
