package data

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data/tokenizer"
	"pgregory.net/rapid"
)

// After any number of documents, every source has given its share of the tokens within
// the bounds that the documentation states, which are those of the longest documents.
func TestMixtureFollowsItsWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []Weighted
		var longest []float64
		weights := 0.0
		for i := range rapid.IntRange(1, 5).Draw(t, "sources") {
			var texts []string
			most := 0
			for _, n := range rapid.SliceOfN(rapid.IntRange(0, 50), 1, 6).Draw(t, "lengths") {
				texts = append(texts, strings.Repeat("x", n))
				most = max(most, n)
			}
			texts = append(texts, "xx") // something to predict
			longest = append(longest, float64(max(most, 2)+1))
			parts = append(parts, Weighted{Documents(fmt.Sprint(i), texts...), rapid.Float64Range(0.01, 10).Draw(t, "weight")})
			weights += parts[i].Weight
		}
		l, err := NewMixedLoader(context.Background(), parts, tokenizer.Byte{}, Options{SeqLen: 1, Rows: 1, Seed: 1, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		s := l.stream
		for range 300 {
			if err := s.load(context.Background()); err != nil {
				t.Fatal(err)
			}
			s.advance(len(s.document))
			total := 0.0
			for _, p := range s.at.parts {
				total += float64(p.Tokens)
			}
			for i, p := range s.at.parts {
				share := parts[i].Weight / weights
				others := 0.0
				for j := range longest {
					if j != i {
						others += longest[j]
					}
				}
				ahead := float64(p.Tokens) - share*total
				if ahead > (1-share)*longest[i]+1e-6 || ahead < -share*others-1e-6 {
					t.Fatalf("source %d of share %v has %d of %v tokens: %v ahead", i, share, p.Tokens, total, ahead)
				}
			}
		}
	})
}

// Sources of one length do not go in step: each has an order of its own.
func TestSourcesOfAMixtureHaveOrdersOfTheirOwn(t *testing.T) {
	o := Options{Shuffle: true, Seed: 1}
	same := 0
	for i := range 100 {
		if newShuffle(o, 0).at(100, 0, i) == newShuffle(o, 1).at(100, 0, i) {
			same++
		}
	}
	if same > 10 {
		t.Errorf("%d of 100 documents stand at the same place in both sources", same)
	}
}

func TestBadMixtures(t *testing.T) {
	a, b, o := Documents("a", "abcdef"), Documents("b", "ghi"), Options{SeqLen: 4, Rows: 1}
	for _, test := range []struct {
		parts   []Weighted
		options Options
		want    string
	}{
		{nil, o, "no document: a mixture needs at least one source"},
		{[]Weighted{{a, 1}, {b, 0}}, o, "data: a+b: the weight of b must be positive and finite: 0"},
		{[]Weighted{{a, -1}, {b, 1}}, o, "the weight of a must be positive and finite: -1"},
		{[]Weighted{{a, math.NaN()}, {b, 1}}, o, "must be positive and finite: NaN"},
		{[]Weighted{{a, math.Inf(1)}, {b, 1}}, o, "must be positive and finite: +Inf"},
		{[]Weighted{{a, 1}, {b, 1e-12}}, o, "the weight of b is 1e-12 of a sum of 1"},
		{[]Weighted{{a, math.MaxFloat64}, {b, math.MaxFloat64}}, o, "of a sum of +Inf"},
		{[]Weighted{{a, 1}, {b, 1}}, Options{SeqLen: 4, Rows: 1, Passes: 1}, "a mixture has no end"},
		{[]Weighted{{a, 1}, {Documents("empty", "", ""), 1}}, o, "text too short: no document of empty has anything to predict: leave it out"},
	} {
		_, err := NewMixedLoader(context.Background(), test.parts, tokenizer.Byte{}, test.options)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want ...%s", err, test.want)
		}
	}
}

// A source of a mixture that loses its text is an error, not a hang.
func TestMixtureWithoutTextDoesNotHang(t *testing.T) {
	source := &emptied{Source: Documents("text", "one", "two", "three")}
	l, err := NewMixedLoader(context.Background(), []Weighted{{Documents("a", "abcdef"), 1}, {source, 1}}, tokenizer.Byte{}, Options{SeqLen: 4, Rows: 9})
	if err != nil {
		t.Fatal(err)
	}
	source.empty = true
	before := stateOf(t, l)
	if err := l.Next(context.Background(), new(Batch)); !errors.Is(err, ErrNoDocument) {
		t.Errorf("got %v", err)
	}
	if after := stateOf(t, l); after != before {
		t.Errorf("the error moved the loader to %s", after)
	}
}
