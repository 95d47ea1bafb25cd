package data

import (
	"context"
	"math"
	"testing"

	"github.com/lethe-go/lethe/data/tokenizer"
	"pgregory.net/rapid"
)

func TestEntropyByHand(t *testing.T) {
	ln := math.Log
	for _, test := range []struct {
		name            string
		texts           []string
		unigram, bigram float64
		predictions     int64
	}{
		{name: "nothing"},
		{name: "one token", texts: []string{"a"}},
		// Predicted: a a a a.
		{name: "constant", texts: []string{"aaaaa"}, predictions: 4},
		// Predicted: b a b, each certain after the other.
		{name: "alternating", texts: []string{"abab"}, unigram: 2./3*ln(3./2) + 1./3*ln(3), predictions: 3},
		// aa ab bb ba: after either token both are equally likely.
		{name: "coin", texts: []string{"aabba"}, unigram: ln(2), bigram: ln(2), predictions: 4},
		// ab ac: b and c equally likely after a; the seam b→a predicts nothing.
		{name: "two documents", texts: []string{"ab", "ac"}, unigram: ln(2), bigram: ln(2), predictions: 2},
		// ab ab ac, ba ba, predicted b a b a c.
		{name: "uneven", texts: []string{"ababac"}, unigram: 4./5*ln(5./2) + 1./5*ln(5), bigram: 3. / 5 * (2./3*ln(3./2) + 1./3*ln(3)), predictions: 5},
	} {
		var b Bigrams
		var ids [][]int32
		for _, text := range test.texts {
			ids = append(ids, tokenizer.Byte{}.Encode(text))
			b.Add(ids[len(ids)-1])
		}
		e := b.Entropy()
		if math.Abs(e.Unigram-test.unigram) > 1e-12 || math.Abs(e.Bigram-test.bigram) > 1e-12 || e.Predictions != test.predictions {
			t.Errorf("%s: got %+v, want %+v", test.name, e, test)
		}
		if got := BigramEntropy(ids...); got != e.Bigram {
			t.Errorf("%s: BigramEntropy is %v, Entropy().Bigram %v", test.name, got, e.Bigram)
		}
	}
}

// A source's entropy counts the end of a document as a prediction: after a, b or the end.
func TestMeasureEntropyCountsTheEnd(t *testing.T) {
	e, err := MeasureEntropy(context.Background(), Documents("text", "ab", "", "a"), tokenizer.Byte{})
	if err != nil {
		t.Fatal(err)
	}
	if want := 2. / 3 * math.Log(2); math.Abs(e.Bigram-want) > 1e-12 || e.Predictions != 3 {
		t.Errorf("got %+v, want bigram %v", e, want)
	}
}

// No bigram model does better than the entropy: any table of conditional
// probabilities has at least that cross-entropy. Knowing more never hurts either.
func TestEntropyIsALowerBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 3), 2, 60).Draw(t, "ids")
		weights := rapid.SliceOfN(rapid.Float64Range(0.01, 1), 16, 16).Draw(t, "weights")
		loss := 0.0
		for i := 1; i < len(ids); i++ {
			row := weights[4*ids[i-1]:][:4]
			loss -= math.Log(row[ids[i]]/(row[0]+row[1]+row[2]+row[3])) / float64(len(ids)-1)
		}
		var b Bigrams
		b.Add(ids)
		e := b.Entropy()
		if loss < e.Bigram-1e-9 {
			t.Fatalf("a bigram model reaches %v, below %v", loss, e.Bigram)
		}
		if e.Bigram > e.Unigram+1e-9 {
			t.Fatalf("bigram %v is above unigram %v", e.Bigram, e.Unigram)
		}
	})
}
