package data

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data/tokenizer"
	"pgregory.net/rapid"
)

// No document that fits a row is cut, and every token of a pass is there once.
func TestFirstFitCutsNothingThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqLen := rapid.IntRange(2, 20).Draw(t, "seq_len")
		lengths := rapid.SliceOfN(rapid.IntRange(1, 60), 1, 400).Draw(t, "lengths")
		var texts []string
		tokens := 0
		whole := map[int]int{} // documents that fit, by their tokens
		for _, n := range lengths {
			texts = append(texts, strings.Repeat("x", n))
			tokens += n + 1
			for n++; n > seqLen; n -= seqLen {
				whole[seqLen]++
			}
			whole[n]++ // the rest of a longer one must not be cut either
		}
		l, err := NewLoader(context.Background(), Documents("text", texts...), tokenizer.Byte{}, Options{SeqLen: seqLen, Rows: 1, Packing: FirstFit, Passes: 1})
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range l.All(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			for from := 0; from < seqLen-b.Padding; {
				to := from
				for to < seqLen-b.Padding && b.DocumentStart[to] == int32(from) {
					to++
				}
				whole[to-from]--
				tokens -= to - from
				from = to
			}
		}
		if tokens != 0 {
			t.Fatalf("%d tokens are missing", tokens)
		}
		for n, left := range whole {
			if left != 0 {
				t.Fatalf("%d pieces of %d tokens are missing", left, n)
			}
		}
	})
}

// Whoever is told that the padding is small should find it so.
func TestFirstFitPadsLittle(t *testing.T) {
	for _, test := range []struct {
		name   string
		packer Packing
		most   float64 // percent
	}{{"first_fit", FirstFit, 7}, {"concatenate", Concatenate, 0}} {
		var texts []string
		for i := range 5000 {
			texts = append(texts, strings.Repeat("x", 1+(i*7919)%199)) // mean 100
		}
		l, err := NewLoader(context.Background(), Documents("text", texts...), tokenizer.Byte{}, Options{SeqLen: 256, Rows: 4, Packing: test.packer, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		var b Batch
		padding, tokens := 0, 0
		for range 500 {
			if err := l.Next(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			padding, tokens = padding+b.Padding, tokens+len(b.Tokens)
		}
		if percent := 100 * float64(padding) / float64(tokens); percent > test.most {
			t.Errorf("%s: %.2f%% of padding", test.name, percent)
		}
	}
}

// An error in the middle of the next block goes back to the middle of this one.
func TestFirstFitAfterAnErrorIsAsIfNothingHappened(t *testing.T) {
	ctx := context.Background()
	var texts []string
	for i := range 3 * openRows {
		texts = append(texts, strings.Repeat("x", 1+i%4))
	}
	source := &failing{Source: Documents("text", texts...)}
	open := func() *Loader {
		l, err := NewLoader(ctx, source, tokenizer.Byte{}, Options{SeqLen: 5, Rows: openRows / 4 * 3, Packing: FirstFit})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	reference, tested := open(), open()
	failures := 0
	for range 12 {
		var want, got Batch
		if err := reference.Next(ctx, &want); err != nil {
			t.Fatal(err)
		}
		before := stateOf(t, tested)
		source.broken = true
		err := tested.Next(ctx, &got)
		source.broken = false
		if err != nil {
			failures++
			if !errors.Is(err, errBroken) || stateOf(t, tested) != before {
				t.Fatalf("%v moved the loader from %s to %s", err, before, stateOf(t, tested))
			}
			if err = tested.Next(ctx, &got); err != nil {
				t.Fatal(err)
			}
		}
		sameBatch(t, got, want)
	}
	if failures == 0 {
		t.Error("nothing failed")
	}
}
