package data

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/lethe-go/lethe/data/tokenizer"
)

// Entropy is the entropy of a text under the simplest models there are, in nats per
// prediction: what a trained model's loss on the same text is measured against.
//
// The predictions are exactly the valid labels of a one-pass [Loader]: every token
// of a document but its first, its EOS included. Both models are fitted on the text
// itself, so each number is the lowest loss that any model of its kind can reach on
// it, without smoothing and without generalization:
//
//	Unigram = -Σ_b  n(b)/N · ln(n(b)/N)
//	Bigram  = -Σ_ab n(ab)/N · ln(n(ab)/n(a·))
//
// with n(ab) the number of predictions of b after a, n(b) of b after anything, n(a·)
// of anything after a, N of all. Bigram is the empirical conditional entropy
// H(X_t | X_{t-1}).
type Entropy struct {
	Unigram     float64
	Bigram      float64
	Predictions int64
}

// MeasureEntropy returns the entropy of a source's documents under a tokenizer; for
// [tokenizer.Byte] it is the byte-bigram entropy.
func MeasureEntropy(ctx context.Context, s Source, t tokenizer.Tokenizer) (Entropy, error) {
	var b Bigrams
	var ids []int32
	for i := range s.Len() {
		var err error
		if ids, err = appendDocument(ctx, ids[:0], s, t, i); err != nil {
			return Entropy{}, err
		}
		b.Add(ids)
	}
	return b.Entropy(), nil
}

// BigramEntropy returns the empirical conditional entropy of a token given the one
// before it, in nats per prediction, and 0 if nothing is predicted. Each slice is a
// document; nothing is predicted from one to the next.
func BigramEntropy(documents ...[]int32) float64 {
	var b Bigrams
	for _, d := range documents {
		b.Add(d)
	}
	return b.Entropy().Bigram
}

// Bigrams counts pairs of adjacent tokens. The zero value is ready.
type Bigrams struct {
	pairs map[pair]int64
}

type pair struct{ previous, token int32 }

// Add counts a document's pairs.
func (b *Bigrams) Add(document []int32) {
	if b.pairs == nil {
		b.pairs = map[pair]int64{}
	}
	for i := 1; i < len(document); i++ {
		b.pairs[pair{document[i-1], document[i]}]++
	}
}

// Entropy returns the entropies of what was added.
func (b *Bigrams) Entropy() Entropy {
	after, of := map[int32]int64{}, map[int32]int64{}
	var e Entropy
	for p, n := range b.pairs {
		after[p.previous] += n
		of[p.token] += n
		e.Predictions += n
	}
	total := float64(e.Predictions)
	// Summed in a fixed order: the same text prints the same digits.
	for _, p := range slices.SortedFunc(maps.Keys(b.pairs), func(p, q pair) int {
		return cmp.Or(cmp.Compare(p.previous, q.previous), cmp.Compare(p.token, q.token))
	}) {
		n := float64(b.pairs[p])
		e.Bigram -= n / total * math.Log(n/float64(after[p.previous]))
	}
	for _, token := range slices.Sorted(maps.Keys(of)) {
		n := float64(of[token])
		e.Unigram -= n / total * math.Log(n/total)
	}
	return e
}
