package data

import (
	"context"
	"encoding/json"
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

// naive returns the first rows of the rule in the package documentation, one token
// at a time: the whole stream is written out, then cut.
func naive(s *documents, t tokenizer.Tokenizer, o Options, rows int) (batch Batch) {
	type token struct {
		id    int32
		last  bool // of its document
		piece int  // number of its document in the stream
	}
	var stream []token
	pieces := 0
	for epoch := 0; len(stream) < rows*o.SeqLen+1 && (o.Passes == 0 || epoch < o.Passes); epoch++ {
		order := newPermutation(len(s.texts), o.Seed, int64(epoch))
		for i := range s.texts {
			if o.Shuffle {
				i = order.at(i)
			}
			if s.texts[i] == "" {
				continue
			}
			ids := t.Encode(s.texts[i])
			if t.BOS() >= 0 {
				ids = slices.Insert(ids, 0, t.BOS())
			}
			if t.EOS() >= 0 {
				ids = append(ids, t.EOS())
			}
			for j, id := range ids {
				stream = append(stream, token{id, j == len(ids)-1, pieces})
			}
			pieces++
		}
	}
	batch.shape(rows, o.SeqLen)
	for i := range batch.Tokens {
		now := token{max(0, t.EOS()), true, -1}
		if i < len(stream) {
			now = stream[i]
		}
		batch.Tokens[i], batch.Labels[i] = now.id, Ignore
		if !now.last {
			batch.Labels[i] = stream[i+1].id
			batch.Valid++
		}
		column := i % o.SeqLen
		before := i - 1
		switch {
		case column == 0, before < len(stream) && (i >= len(stream) || stream[before].piece != now.piece):
			batch.DocumentStart[i] = int32(column)
		default:
			batch.DocumentStart[i] = batch.DocumentStart[before]
		}
		batch.Positions[i] = int32(column) - batch.DocumentStart[i]
	}
	return batch
}

// drawCase returns a source with enough text, a tokenizer and an order.
func drawCase(t *rapid.T) (*documents, tokenizer.Tokenizer, Options) {
	o := Options{
		SeqLen:  rapid.IntRange(1, 9).Draw(t, "seq_len"),
		Seed:    rapid.Uint64().Draw(t, "seed"),
		Shuffle: rapid.Bool().Draw(t, "shuffle"),
		Passes:  rapid.IntRange(0, 3).Draw(t, "passes"),
	}
	texts := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("abc—")), 0, 12, -1), 1, 8).Draw(t, "texts")
	texts = append(texts, strings.Repeat("z", o.SeqLen+2))
	tok := edged{bos: rapid.SampledFrom([]int32{-1, 300}).Draw(t, "bos"), eos: rapid.SampledFrom([]int32{-1, 256}).Draw(t, "eos")}
	return Documents("case", texts...).(*documents), tok, o
}

// readRows reads whole global batches with all ranks, until there are rows rows or
// the end, and returns the rows in their common order. It checks that the states of
// the ranks agree.
func readRows(t *rapid.T, loaders []*Loader, rows int) (out Batch) {
	o := loaders[0].options
	out.SeqLen = o.SeqLen
	for out.Rows < rows {
		var states []State
		ended := 0
		for _, l := range loaders {
			var b Batch
			err := l.Next(context.Background(), &b)
			if err == io.EOF {
				ended++
			} else if err != nil {
				t.Fatal(err)
			} else {
				out.Tokens = append(out.Tokens, b.Tokens...)
				out.Labels = append(out.Labels, b.Labels...)
				out.Positions = append(out.Positions, b.Positions...)
				out.DocumentStart = append(out.DocumentStart, b.DocumentStart...)
				out.Rows += b.Rows
				out.Valid += b.Valid
			}
			states = append(states, l.State())
		}
		for _, s := range states {
			if s != states[0] {
				t.Fatalf("ranks stand at %+v and %+v", states[0], s)
			}
		}
		if ended > 0 {
			if ended != len(loaders) {
				t.Fatalf("%d of %d ranks are at the end", ended, len(loaders))
			}
			break
		}
	}
	return out
}

func openRanks(t *rapid.T, s Source, tok tokenizer.Tokenizer, o Options, ranks, rows int) []*Loader {
	loaders := make([]*Loader, ranks)
	for rank := range loaders {
		o.Rank, o.Ranks, o.Rows = rank, ranks, rows
		l, err := NewLoader(context.Background(), s, tok, o)
		if err != nil {
			t.Fatal(err)
		}
		loaders[rank] = l
	}
	return loaders
}

func TestRowsEqualTheNaiveOnesOnAnyRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source, tok, o := drawCase(t)
		ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
		rows := rapid.IntRange(1, 3).Draw(t, "rows")
		got := readRows(t, openRanks(t, source, tok, o, ranks, rows), rapid.IntRange(1, 40).Draw(t, "read"))
		if want := naive(source, tok, o, got.Rows); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// A run that is stopped anywhere, and goes on with other ranks, rows and row length
// so often as it likes, reads the tokens and labels of one that never stopped.
func TestResumeEqualsNeverStopped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source, tok, o := drawCase(t)
		// The end of the last pass is padded: another row length would pad otherwise.
		o.Passes = 0
		var tokens, labels []int32
		var state []byte
		for range rapid.IntRange(1, 5).Draw(t, "stops") {
			sameLength := o
			if rapid.Bool().Draw(t, "another seq_len") {
				sameLength.SeqLen = rapid.IntRange(1, o.SeqLen).Draw(t, "seq_len")
			}
			loaders := openRanks(t, source, tok, sameLength, rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 3).Draw(t, "rows"))
			if state != nil {
				for _, l := range loaders {
					var s State
					if err := json.Unmarshal(state, &s); err != nil {
						t.Fatal(err)
					}
					if err := l.Restore(s); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := readRows(t, loaders, rapid.IntRange(0, 12).Draw(t, "read"))
			tokens, labels = append(tokens, got.Tokens...), append(labels, got.Labels...)
			var err error
			if state, err = json.Marshal(loaders[0].State()); err != nil {
				t.Fatal(err)
			}
		}
		want := naive(source, tok, o, len(tokens)/o.SeqLen+1)
		if !slices.Equal(tokens, want.Tokens[:len(tokens)]) || !slices.Equal(labels, want.Labels[:len(labels)]) {
			t.Fatalf("tokens %v\nwant   %v\nlabels %v\nwant   %v", tokens, want.Tokens, labels, want.Labels)
		}
	})
}

// With an end, a resume also ends where the run that never stopped does.
func TestResumeEndsAtTheSameRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source, tok, o := drawCase(t)
		o.Passes = max(1, o.Passes)
		whole := readRows(t, openRanks(t, source, tok, o, 1, 1), 1<<30)
		stopped := openRanks(t, source, tok, o, 1, 1)
		head := readRows(t, stopped, rapid.IntRange(0, whole.Rows).Draw(t, "read"))
		resumed := openRanks(t, source, tok, o, 1, 1)
		if err := resumed[0].Restore(stopped[0].State()); err != nil {
			t.Fatal(err)
		}
		tail := readRows(t, resumed, 1<<30)
		if got := slices.Concat(head.Labels, tail.Labels); !slices.Equal(got, whole.Labels) {
			t.Fatalf("got %v\nwant %v", got, whole.Labels)
		}
	})
}

// In one pass every prediction inside a document is made once: the loss on it can be
// compared with the entropy.
func TestPredictionsAreThoseOfTheEntropy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source, tok, o := drawCase(t)
		o.Passes = 1
		got := readRows(t, openRanks(t, source, tok, o, 2, 2), 1<<30)
		e, err := MeasureEntropy(context.Background(), source, tok)
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
		before := tested.State()
		source.broken = true
		if err := tested.Next(ctx, &got); err != nil {
			if !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
			if tested.State() != before {
				t.Fatalf("the error moved the loader from %+v to %+v", before, tested.State())
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

func TestNextDoesNotAllocate(t *testing.T) {
	l, b := quickstartLoader(t), new(Batch)
	next := func() {
		if err := l.Next(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	for range 2000 { // past the longest document
		next()
	}
	if n := testing.AllocsPerRun(2000, next); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, ranks := range []int{1, 8} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			l, batch := quickstartLoader(b), new(Batch)
			l.options.Ranks = ranks
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Next(context.Background(), batch); err != nil {
					b.Fatal(err)
				}
			}
			tokens := float64(b.N) * float64(len(batch.Tokens))
			b.ReportMetric(tokens/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func quickstartLoader(t testing.TB) *Loader {
	train, _, err := Corpus("moby_dick")
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLoader(context.Background(), train, tokenizer.Byte{}, Options{SeqLen: 256, Rows: 4, Seed: 1, Shuffle: true})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
