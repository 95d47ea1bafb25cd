package data_test

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/data/tokenizer"
)

// Two documents packed into rows of eight, as drawn in the package documentation.
func Example() {
	ctx := context.Background()
	source := data.Documents("example", "Call.", "No")
	loader, err := data.NewLoader(ctx, source, tokenizer.Byte{}, data.Options{SeqLen: 8, Rows: 1, Passes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for batch, err := range loader.All(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(batch.Tokens)
		fmt.Println(batch.Labels)
		fmt.Println(batch.Positions)
		fmt.Println(batch.DocumentStart)
		fmt.Println(batch.Valid, "valid")
	}
	// Output:
	// [67 97 108 108 46 256 78 111]
	// [97 108 108 46 256 -100 111 256]
	// [0 1 2 3 4 5 0 1]
	// [0 0 0 0 0 0 6 6]
	// 7 valid
	// [256 256 256 256 256 256 256 256]
	// [-100 -100 -100 -100 -100 -100 -100 -100]
	// [0 0 1 2 3 4 5 6]
	// [0 1 1 1 1 1 1 1]
	// 0 valid
}

// A state is a position in the common sequence of all ranks: two ranks take over
// from one.
func ExampleLoader_Restore() {
	ctx := context.Background()
	text, err := data.Corpus("moby_dick")
	if err != nil {
		fmt.Println(err)
		return
	}
	open := func(rows, rank, ranks int) *data.Loader {
		l, err := data.NewLoader(ctx, text, tokenizer.Byte{}, data.Options{SeqLen: 32, Rows: rows, Rank: rank, Ranks: ranks, Seed: 1, Shuffle: true})
		if err != nil {
			panic(err)
		}
		return l
	}

	one := open(2, 0, 1)
	var b data.Batch
	for range 1000 {
		if err := one.Next(ctx, &b); err != nil {
			panic(err)
		}
	}
	state, _ := one.AppendState(nil)

	_ = one.Next(ctx, &b)
	fmt.Printf("%q\n%q\n", tokenizer.Byte{}.Decode(b.Tokens[:32]), tokenizer.Byte{}.Decode(b.Tokens[32:]))
	for rank := range 2 {
		l := open(1, rank, 2)
		if err := l.Restore(state); err != nil {
			panic(err)
		}
		_ = l.Next(ctx, &b)
		fmt.Printf("%q\n", tokenizer.Byte{}.Decode(b.Tokens))
	}
	// Output:
	// "hich some Asiatics had killed, a"
	// "nd were then towing ashore. They"
	// "hich some Asiatics had killed, a"
	// "nd were then towing ashore. They"
}

// Three quarters of the tokens are of one source, whatever the lengths of documents.
func ExampleNewMixedLoader() {
	ctx := context.Background()
	loader, err := data.NewMixedLoader(ctx, []data.Weighted{
		{Source: data.Documents("prose", strings.Repeat("a", 30)), Weight: 3},
		{Source: data.Documents("verse", "bb", "bbbbbb"), Weight: 1},
	}, tokenizer.Byte{}, data.Options{SeqLen: 32, Rows: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	var b data.Batch
	if err := loader.Next(ctx, &b); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tokenizer.Byte{}.Decode(b.Tokens))
	// Output: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbaa
}

// Documents that fit are not cut; what is left of rows is padding.
func ExamplePacking() {
	ctx := context.Background()
	source := data.Documents("words", "eleven", "two", "four", "no")
	loader, err := data.NewLoader(ctx, source, tokenizer.Byte{}, data.Options{SeqLen: 11, Rows: 1, Packing: data.FirstFit, Passes: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for b, err := range loader.All(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-10s starts %v, %d of padding\n", tokenizer.Byte{}.Decode(b.Tokens), b.DocumentStart, b.Padding)
	}
	// Output:
	// eleventwo  starts [0 0 0 0 0 0 0 7 7 7 7], 0 of padding
	// fourno     starts [0 0 0 0 0 5 5 5 8 8 8], 3 of padding
}

// An iterator as a dataset, prepared in the background and resumed.
func ExampleSequence() {
	ctx := context.Background()
	counting := func(context.Context) iter.Seq2[*data.Batch, error] {
		return func(yield func(*data.Batch, error) bool) {
			for i := int32(0); ; i++ {
				b := data.Batch{Rows: 1, SeqLen: 3, Tokens: []int32{i, i + 1, i + 2}, Labels: []int32{i + 1, i + 2, i + 3}}
				if !yield(&b, nil) {
					return
				}
			}
		}
	}
	open := func() data.Batches { return data.Prefetch(data.Sequence("counting", counting), 2) }

	first := open()
	var b data.Batch
	for range 7 {
		if err := first.Next(ctx, &b); err != nil {
			fmt.Println(err)
			return
		}
	}
	state, err := first.AppendState(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	first.Close()

	second := open()
	defer second.Close()
	if err := second.Restore(state); err != nil {
		fmt.Println(err)
		return
	}
	if err := second.Next(ctx, &b); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(state), b.Tokens)
	// Output: {"batches":7} [7 8 9]
}

func ExampleBigramEntropy() {
	var b tokenizer.Byte
	// After a: b, b, c. After b: a, a. After c: nothing. H = 3/5·H(2/3, 1/3) nats.
	fmt.Printf("%.4f\n", data.BigramEntropy(b.Encode("ababac")))
	// Output: 0.3819
}

func ExampleMeasureEntropy() {
	ctx := context.Background()
	text, err := data.Corpus("moby_dick")
	if err != nil {
		fmt.Println(err)
		return
	}
	train, heldOut, err := data.Split(text, 0.1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []data.Source{train, heldOut} {
		e, err := data.MeasureEntropy(ctx, s, tokenizer.Byte{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %d documents, %d predictions, unigram %.4f, bigram %.4f nats\n", s.Name(), s.Len(), e.Predictions, e.Unigram, e.Bigram)
	}
	// Output:
	// moby_dick/train: 124 documents, 1086732 predictions, unigram 3.0729, bigram 2.4110 nats
	// moby_dick/held_out: 14 documents, 129546 predictions, unigram 3.0971, bigram 2.3724 nats
}
