package data

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/lethe-go/lethe/data/tokenizer"
)

// quickstartTokens is what configs/quickstart.toml consumes in a second, generously.
const quickstartTokens = 35_000

// throughputCases are loaders of one text: the chapters in memory, in files, as JSONL
// lines of a paragraph each, and mixtures of them.
func throughputCases(t testing.TB) map[string]Batches {
	ctx := context.Background()
	text, err := Corpus("moby_dick")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	lines, err := os.Create(filepath.Join(folder, "paragraphs.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	write := json.NewEncoder(lines)
	for i := range text.Len() {
		chapter, err := text.Document(ctx, i)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%03d.txt", i)), []byte(chapter), 0o666); err != nil {
			t.Fatal(err)
		}
		for len(chapter) > 0 {
			n := min(len(chapter), 20+int(r.ExpFloat64()*400))
			if err := write.Encode(map[string]any{"id": i, "text": chapter[:n], "source": "moby_dick"}); err != nil {
				t.Fatal(err)
			}
			chapter = chapter[n:]
		}
	}
	if err := lines.Close(); err != nil {
		t.Fatal(err)
	}
	open := func(path string) Source {
		s, err := Files(ctx, "", filepath.Join(folder, path))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	texts, jsonl := open("*.txt"), open("*.jsonl")
	o := Options{SeqLen: 1024, Rows: 8, Seed: 1, Shuffle: true}
	load := func(o Options, parts ...Weighted) Batches {
		l, err := NewMixedLoader(ctx, parts, tokenizer.Byte{}, o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ranks, window, fit := o, o, o
	ranks.Ranks, window.ShuffleWindow, fit.Packing = 8, 1000, FirstFit
	return map[string]Batches{
		"memory":         load(o, Weighted{text, 1}),
		"memory/ranks=8": load(ranks, Weighted{text, 1}),
		"text":           load(o, Weighted{texts, 1}),
		"jsonl":          load(o, Weighted{jsonl, 1}),
		"jsonl/window":   load(window, Weighted{jsonl, 1}),
		"mix":            load(o, Weighted{text, 2}, Weighted{texts, 1}, Weighted{jsonl, 1}),
		"first_fit":      load(fit, Weighted{jsonl, 1}),
		"all":            Prefetch(load(fit, Weighted{text, 2}, Weighted{texts, 1}, Weighted{jsonl, 1}), 2),
	}
}

// BenchmarkLoader prints how many times as many tokens a loader gives as the quickstart
// consumes.
func BenchmarkLoader(b *testing.B) {
	for name, l := range throughputCases(b) {
		b.Run(name, func(b *testing.B) {
			var batch Batch
			padding := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Next(context.Background(), &batch); err != nil {
					b.Fatal(err)
				}
				padding += batch.Padding
			}
			tokens := float64(b.N) * float64(len(batch.Tokens))
			b.ReportMetric(tokens/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(tokens/b.Elapsed().Seconds()/quickstartTokens, "×quickstart")
			b.ReportMetric(100*float64(padding)/tokens, "%padding")
		})
		l.Close()
	}
}

// BenchmarkIndex is how fast a JSONL file is checked and indexed before training.
func BenchmarkIndex(b *testing.B) {
	throughputCases(b) // leaves its files for the time of b
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(b.TempDir()), "*", "*.jsonl"))
	if err != nil || len(paths) != 1 {
		b.Fatal(paths, err)
	}
	info, err := os.Stat(paths[0])
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	for b.Loop() {
		if _, err := Files(context.Background(), "", paths[0]); err != nil {
			b.Fatal(err)
		}
	}
}

// A warm Next allocates nothing but what reading a document takes, and a text in memory
// takes nothing.
func TestNextDoesNotAllocate(t *testing.T) {
	cases := throughputCases(t)
	for _, name := range []string{"memory", "memory/ranks=8"} {
		for _, ahead := range []int{0, 2} {
			l, b := Prefetch(cases[name], ahead), new(Batch)
			var state []byte
			next := func() {
				if err := l.Next(context.Background(), b); err != nil {
					t.Fatal(err)
				}
				var err error
				if state, err = l.AppendState(state[:0]); err != nil {
					t.Fatal(err)
				}
			}
			for range 500 { // past the longest document
				next()
			}
			if n := testing.AllocsPerRun(500, next); n != 0 {
				t.Errorf("%s, %d ahead: %v allocations a batch", name, ahead, n)
			}
			l.Close()
		}
	}
}
