package data_test

import (
	"context"
	"encoding/json"
	"fmt"

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
	train, _, err := data.Corpus("moby_dick")
	if err != nil {
		fmt.Println(err)
		return
	}
	open := func(rows, rank, ranks int) *data.Loader {
		l, err := data.NewLoader(ctx, train, tokenizer.Byte{}, data.Options{SeqLen: 32, Rows: rows, Rank: rank, Ranks: ranks, Seed: 1, Shuffle: true})
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
	saved, _ := json.Marshal(one.State())

	_ = one.Next(ctx, &b)
	fmt.Printf("%q\n%q\n", tokenizer.Byte{}.Decode(b.Tokens[:32]), tokenizer.Byte{}.Decode(b.Tokens[32:]))
	for rank := range 2 {
		var state data.State
		_ = json.Unmarshal(saved, &state)
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

func ExampleBigramEntropy() {
	var b tokenizer.Byte
	// After a: b, b, c. After b: a, a. After c: nothing. H = 3/5·H(2/3, 1/3) nats.
	fmt.Printf("%.4f\n", data.BigramEntropy(b.Encode("ababac")))
	// Output: 0.3819
}

func ExampleMeasureEntropy() {
	ctx := context.Background()
	train, heldOut, err := data.Corpus("moby_dick")
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
