package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data/tokenizer"
	"pgregory.net/rapid"
)

// edged is the byte tokenizer with any choice of special tokens.
type edged struct {
	tokenizer.Byte
	bos, eos int32
}

func (e edged) BOS() int32 { return e.bos }
func (e edged) EOS() int32 { return e.eos }

// loadCase is what a loader reads, and how.
type loadCase struct {
	parts []Weighted
	tok   edged
	o     Options
}

func (c loadCase) open(t *rapid.T, ranks, rows int) []*Loader {
	loaders := make([]*Loader, ranks)
	for rank := range loaders {
		o := c.o
		o.Rank, o.Ranks, o.Rows = rank, ranks, rows
		l, err := NewMixedLoader(context.Background(), c.parts, c.tok, o)
		if err != nil {
			t.Fatal(err)
		}
		loaders[rank] = l
	}
	return loaders
}

// drawCase returns sources with enough text, a tokenizer, an order and a packing.
func drawCase(t *rapid.T) (c loadCase) {
	c.o = Options{
		SeqLen:        rapid.IntRange(1, 9).Draw(t, "seq_len"),
		Seed:          rapid.Uint64().Draw(t, "seed"),
		Shuffle:       rapid.Bool().Draw(t, "shuffle"),
		ShuffleWindow: rapid.IntRange(0, 5).Draw(t, "window"),
		Packing:       rapid.SampledFrom([]Packing{"", Concatenate, FirstFit}).Draw(t, "packing"),
	}
	sources := rapid.IntRange(1, 3).Draw(t, "sources")
	if sources == 1 {
		c.o.Passes = rapid.IntRange(0, 3).Draw(t, "passes")
	}
	for i := range sources {
		texts := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("abc—")), 0, 12, -1), 0, 8).Draw(t, "texts")
		texts = append(texts, strings.Repeat("z", c.o.SeqLen+2))
		c.parts = append(c.parts, Weighted{Documents(fmt.Sprint("source", i), texts...), rapid.Float64Range(0.1, 4).Draw(t, "weight")})
	}
	c.tok = edged{bos: rapid.SampledFrom([]int32{-1, 300}).Draw(t, "bos"), eos: rapid.SampledFrom([]int32{-1, 256}).Draw(t, "eos")}
	return c
}

// naiveDocuments yields the documents of the rule in the package documentation, without
// end unless there are passes.
func (c loadCase) naiveDocuments(yield func([]int32) bool) {
	given := make([]float64, len(c.parts))
	read := make([]int, len(c.parts))
	for {
		turn := 0
		for i := range given {
			if given[i]/c.parts[i].Weight < given[turn]/c.parts[turn].Weight {
				turn = i
			}
		}
		texts := c.parts[turn].Source.(*documents).texts
		epoch := read[turn] / len(texts)
		if c.o.Passes > 0 && epoch == c.o.Passes {
			return
		}
		text := texts[newShuffle(c.o, turn).at(len(texts), int64(epoch), read[turn]%len(texts))]
		read[turn]++
		if text == "" {
			continue
		}
		ids := c.tok.Encode(text)
		if c.tok.bos >= 0 {
			ids = slices.Insert(ids, 0, c.tok.bos)
		}
		if c.tok.eos >= 0 {
			ids = append(ids, c.tok.eos)
		}
		given[turn] += float64(len(ids))
		if !yield(ids) {
			return
		}
	}
}

// naiveRow is a row as it grows, token by token.
type naiveRow struct{ tokens, labels, positions, start []int32 }

func (r *naiveRow) add(tokens, labels []int32) {
	start := len(r.tokens)
	for i := range tokens {
		r.tokens, r.labels = append(r.tokens, tokens[i]), append(r.labels, labels[i])
		r.positions, r.start = append(r.positions, int32(i)), append(r.start, int32(start))
	}
}

// naive returns the first rows of the rule in the package documentation: all of them,
// if there are fewer.
func (c loadCase) naive(rows int) (batch Batch) {
	var done, block []*naiveRow
	n := c.o.SeqLen
	for ids := range c.naiveDocuments {
		labels := append(slices.Clone(ids[1:]), Ignore)
		for len(ids) > 0 {
			piece := min(len(ids), n)
			var row *naiveRow
			for _, r := range block {
				if c.o.Packing != FirstFit && len(r.tokens) < n {
					row, piece = r, min(piece, n-len(r.tokens))
				} else if row == nil && len(r.tokens)+piece <= n {
					row = r
				}
			}
			if row == nil {
				if len(block) == openRows {
					done, block = append(done, block...), nil
				}
				row = new(naiveRow)
				block = append(block, row)
			}
			row.add(ids[:piece], labels[:piece])
			ids, labels = ids[piece:], labels[piece:]
		}
		if len(done) >= rows || (c.o.Packing != FirstFit && len(block) > rows) {
			break
		}
	}
	done = append(done, block...)
	batch.shape(rows, n)
	for i := range rows {
		row := new(naiveRow)
		if i < len(done) {
			row = done[i]
		}
		for _, label := range row.labels {
			if label != Ignore {
				batch.Valid++
			}
		}
		if left := n - len(row.tokens); left > 0 {
			batch.Padding += left
			row.add(slices.Repeat([]int32{max(0, c.tok.eos)}, left), slices.Repeat([]int32{Ignore}, left))
		}
		to := batch.row(i)
		copy(to.tokens, row.tokens)
		copy(to.labels, row.labels)
		copy(to.positions, row.positions)
		copy(to.start, row.start)
	}
	return batch
}

// readRows reads whole global batches with all ranks, until there are rows rows or
// the end, and returns the rows in their common order. It checks that the states of
// the ranks agree.
func readRows[B Batches](t *rapid.T, ranks []B, seqLen, rows int) (out Batch) {
	out.SeqLen = seqLen
	for out.Rows < rows {
		ended := 0
		state := stateOf(t, ranks[0])
		for _, l := range ranks {
			if s := stateOf(t, l); s != state {
				t.Fatalf("ranks stand at %s and %s", state, s)
			}
			var b Batch
			err := l.Next(context.Background(), &b)
			if err == io.EOF {
				ended++
				continue
			}
			if err == nil {
				err = b.Check(b.Rows, seqLen, 301)
			}
			if err != nil {
				t.Fatal(err)
			}
			out.Tokens = append(out.Tokens, b.Tokens...)
			out.Labels = append(out.Labels, b.Labels...)
			out.Positions = append(out.Positions, b.Positions...)
			out.DocumentStart = append(out.DocumentStart, b.DocumentStart...)
			out.Rows += b.Rows
			out.Valid += b.Valid
			out.Padding += b.Padding
		}
		if ended > 0 {
			if ended != len(ranks) {
				t.Fatalf("%d of %d ranks are at the end", ended, len(ranks))
			}
			break
		}
	}
	return out
}

func stateOf(t interface{ Fatal(...any) }, b Batches) string {
	state, err := b.AppendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(state)
}

func TestRowsEqualTheNaiveOnesOnAnyRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
		rows := rapid.IntRange(1, 3).Draw(t, "rows")
		read := rapid.SampledFrom([]int{1, 5, 40, openRows + 3, 3 * openRows}).Draw(t, "read")
		got := readRows(t, c.open(t, ranks, rows), c.o.SeqLen, read)
		if want := c.naive(got.Rows); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// A run that is stopped anywhere, and goes on with other ranks and rows, with or
// without prefetching, as often as it likes, reads the rows of one that never stopped.
func TestResumeEqualsNeverStopped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		// The end of the last pass is padded to whole batches: other ones pad otherwise.
		c.o.Passes = 0
		var all Batch
		state := ""
		for range rapid.IntRange(1, 5).Draw(t, "stops") {
			loaders := c.open(t, rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 3).Draw(t, "rows"))
			ranks := make([]Batches, len(loaders))
			for i, l := range loaders {
				ranks[i] = Prefetch(l, rapid.IntRange(0, 3).Draw(t, "prefetch"))
				if state == "" {
					continue
				}
				if err := ranks[i].Restore([]byte(state)); err != nil {
					t.Fatal(err)
				}
			}
			read := rapid.SampledFrom([]int{0, 1, 7, 20, openRows}).Draw(t, "read")
			got := readRows(t, ranks, c.o.SeqLen, read)
			all.Tokens, all.Labels = append(all.Tokens, got.Tokens...), append(all.Labels, got.Labels...)
			all.DocumentStart = append(all.DocumentStart, got.DocumentStart...)
			all.Rows += got.Rows
			state = stateOf(t, ranks[len(ranks)-1])
			for _, r := range ranks {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := c.naive(all.Rows)
		if !slices.Equal(all.Tokens, want.Tokens) || !slices.Equal(all.Labels, want.Labels) || !slices.Equal(all.DocumentStart, want.DocumentStart) {
			t.Fatalf("tokens %v\nwant   %v\nlabels %v\nwant   %v", all.Tokens, want.Tokens, all.Labels, want.Labels)
		}
	})
}

// Concatenated, a run may even go on with rows of another length.
func TestResumeWithAnotherSeqLen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		c.o.Passes, c.o.Packing = 0, Concatenate
		longest := c
		var tokens, labels []int32
		state := ""
		for range rapid.IntRange(1, 5).Draw(t, "stops") {
			c.o.SeqLen = rapid.IntRange(1, longest.o.SeqLen).Draw(t, "seq_len")
			loaders := c.open(t, 2, 1)
			for _, l := range loaders {
				if state == "" {
					continue
				}
				if err := l.Restore([]byte(state)); err != nil {
					t.Fatal(err)
				}
			}
			got := readRows(t, loaders, c.o.SeqLen, rapid.IntRange(0, 12).Draw(t, "read"))
			tokens, labels = append(tokens, got.Tokens...), append(labels, got.Labels...)
			state = stateOf(t, loaders[0])
		}
		want := longest.naive(len(tokens)/longest.o.SeqLen + 1)
		if !slices.Equal(tokens, want.Tokens[:len(tokens)]) || !slices.Equal(labels, want.Labels[:len(labels)]) {
			t.Fatalf("tokens %v\nwant   %v\nlabels %v\nwant   %v", tokens, want.Tokens, labels, want.Labels)
		}
	})
}

// With an end, a resume also ends where the run that never stopped does.
func TestResumeEndsAtTheSameRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		c.parts, c.o.Passes = c.parts[:1], max(1, c.o.Passes)
		n := c.o.SeqLen
		whole := readRows(t, c.open(t, 1, 1), n, 1<<30)
		stopped := c.open(t, 1, 1)
		head := readRows(t, stopped, n, rapid.IntRange(0, whole.Rows).Draw(t, "read"))
		resumed := c.open(t, 1, 1)
		if err := resumed[0].Restore([]byte(stateOf(t, stopped[0]))); err != nil {
			t.Fatal(err)
		}
		tail := readRows(t, resumed, n, 1<<30)
		if got := slices.Concat(head.Labels, tail.Labels); !slices.Equal(got, whole.Labels) {
			t.Fatalf("got %v\nwant %v", got, whole.Labels)
		}
	})
}

// In one pass every prediction inside a document is made once: the loss on it can be
// compared with the entropy.
func TestPredictionsAreThoseOfTheEntropy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		c.parts, c.o.Passes = c.parts[:1], 1
		got := readRows(t, c.open(t, 2, 2), c.o.SeqLen, 1<<30)
		e, err := MeasureEntropy(context.Background(), c.parts[0].Source, c.tok)
		if err != nil {
			t.Fatal(err)
		}
		if int64(got.Valid) != e.Predictions {
			t.Fatalf("%d valid labels, %d predictions", got.Valid, e.Predictions)
		}
	})
}

func TestTooShort(t *testing.T) {
	source := Documents("haiku", "five", "", "seven")
	_, err := NewLoader(context.Background(), source, tokenizer.Byte{}, Options{SeqLen: 11, Rows: 1})
	const want = "data: haiku: text too short: 11 tokens in 3 documents, but 12 are needed (sequence length 11, and one to predict): use more text or a shorter sequence"
	if !errors.Is(err, ErrTooShort) || err.Error() != want {
		t.Errorf("got  %v\nwant %v", err, want)
	}
	if _, err := NewLoader(context.Background(), source, tokenizer.Byte{}, Options{SeqLen: 10, Rows: 1}); err != nil {
		t.Errorf("11 tokens and SeqLen 10: %v", err)
	}
	if _, err := NewLoader(context.Background(), source, tokenizer.Byte{}, Options{SeqLen: 11, Rows: 1, Passes: 1}); err != nil {
		t.Errorf("one pass pads its last row: %v", err)
	}
	if _, err := NewLoader(context.Background(), Documents("nothing", "", ""), tokenizer.Byte{}, Options{SeqLen: 1, Rows: 1, Passes: 1}); !errors.Is(err, ErrTooShort) {
		t.Errorf("nothing to predict: got %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{Rows: 1}, "SeqLen is 0"},
		{Options{SeqLen: 1}, "Rows is 0"},
		{Options{SeqLen: 1, Rows: 1, Rank: 2, Ranks: 2}, "rank 2 is not one of 2 ranks"},
		{Options{SeqLen: 1, Rows: 1, Rank: -1, Ranks: 2}, "rank -1"},
		{Options{SeqLen: 1, Rows: 1, Ranks: -1}, "-1 ranks"},
		{Options{SeqLen: 1, Rows: 1, Passes: -1}, "passes"},
		{Options{SeqLen: 1, Rows: 1, ShuffleWindow: -1}, "the shuffle window is negative: -1"},
		{Options{SeqLen: 1, Rows: 1, Packing: "best_fit"}, `unknown packing "best_fit": known are "concatenate" and "first_fit"`},
	} {
		_, err := NewLoader(context.Background(), Documents("text", "abc"), tokenizer.Byte{}, test.options)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "data: text: ") {
			t.Errorf("%+v: got %v, want ...%s", test.options, err, test.want)
		}
	}
}

// failing is a source whose documents cannot be read while broken.
type failing struct {
	Source
	broken bool
}

var errBroken = errors.New("the disk is gone")

func (f *failing) Document(ctx context.Context, i int) (string, error) {
	if f.broken && i == 3 {
		return "", errBroken
	}
	return f.Source.Document(ctx, i)
}

func TestNextAfterAnErrorIsAsIfNothingHappened(t *testing.T) {
	ctx := context.Background()
	source := &failing{Source: Documents("text", "one", "two", "three", "four", "five")}
	open := func() *Loader {
		l, err := NewLoader(ctx, source, tokenizer.Byte{}, Options{SeqLen: 7, Rows: 1, Rank: 1, Ranks: 2})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	reference, tested := open(), open()
	var want, got Batch
	for range 5 {
		if err := reference.Next(ctx, &want); err != nil {
			t.Fatal(err)
		}
		before := stateOf(t, tested)
		source.broken = true
		if err := tested.Next(ctx, &got); err != nil {
			if !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
			if now := stateOf(t, tested); now != before {
				t.Fatalf("the error moved the loader from %s to %s", before, now)
			}
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			if err := tested.Next(cancelled, &got); !errors.Is(err, context.Canceled) {
				t.Fatalf("cancelled: got %v", err)
			}
			source.broken = false
			if err := tested.Next(ctx, &got); err != nil {
				t.Fatal(err)
			}
		}
		source.broken = false
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}

func TestAllYieldsAnErrorOnce(t *testing.T) {
	source := &failing{Source: Documents("text", "one", "two", "three", "four", "five"), broken: true}
	l, err := NewLoader(context.Background(), source, tokenizer.Byte{}, Options{SeqLen: 4, Rows: 1, Passes: 1})
	if err != nil {
		t.Fatal(err)
	}
	batches, failures := 0, 0
	for _, err := range l.All(context.Background()) {
		if err != nil {
			failures++
		} else {
			batches++
		}
	}
	if batches != 3 || failures != 1 {
		t.Errorf("%d batches and %d errors, want 3 and 1", batches, failures)
	}
}

// emptied has text only until a loader is made.
type emptied struct {
	Source
	empty bool
}

func (e *emptied) Document(ctx context.Context, i int) (string, error) {
	if e.empty {
		return "", nil
	}
	return e.Source.Document(ctx, i)
}

func TestSourceThatLosesItsTextDoesNotHang(t *testing.T) {
	source := &emptied{Source: Documents("text", "one", "two", "three")}
	l, err := NewLoader(context.Background(), source, tokenizer.Byte{}, Options{SeqLen: 4, Rows: 1})
	if err != nil {
		t.Fatal(err)
	}
	source.empty = true
	if err := l.Next(context.Background(), new(Batch)); !errors.Is(err, ErrNoDocument) {
		t.Errorf("got %v", err)
	}
}
