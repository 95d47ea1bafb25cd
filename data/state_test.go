package data

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data/tokenizer"
)

func stateLoader(t testing.TB, o Options) *Loader {
	o.SeqLen, o.Rows = 4, 2
	l, err := NewLoader(context.Background(), Documents("text", "abc", "", "defgh", "ij"), tokenizer.Byte{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// change returns a state of l with a change.
func change(t testing.TB, l *Loader, f func(*loaderState)) []byte {
	var s loaderState
	if err := json.Unmarshal([]byte(stateOf(t, l)), &s); err != nil {
		t.Fatal(err)
	}
	f(&s)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The names in a saved state are a promise: change them only with the version.
func TestStateAsJSON(t *testing.T) {
	l := stateLoader(t, Options{Seed: 1<<63 + 1})
	if err := l.Next(context.Background(), new(Batch)); err != nil {
		t.Fatal(err)
	}
	want := `{"version":2,"identity":{"tokenizer":"byte","shuffle":false,"shuffle_window":0,"seed":"9223372036854775809","packing":"concatenate","seq_len":4,` +
		`"sources":[{"name":"text","fingerprint":"` + l.stream.parts[0].Source.Fingerprint() + `","weight":1}]},` +
		`"position":{"sources":[{"epoch":0,"document":2,"tokens":4}],"token":4,"row":0}}`
	if got := stateOf(t, l); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// What is written by hand is what encoding/json writes.
	if got := string(change(t, l, func(*loaderState) {})); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRestoreRefusesWhatDoesNotFit(t *testing.T) {
	l := stateLoader(t, Options{Seed: 1, Shuffle: true, Packing: FirstFit})
	good := stateOf(t, l)
	for _, test := range []struct {
		change func(*loaderState)
		want   string
	}{
		{func(s *loaderState) { s.Version = 1 }, "version 1, this program reads 2"},
		{func(s *loaderState) { s.Identity.Sources[0] = stateSource{"other", "f00", 1} }, "saved on other text (other, fingerprint \"f00\", now text"},
		{func(s *loaderState) { s.Identity.Sources = nil }, "saved with 0 sources, now there are 1"},
		{func(s *loaderState) { s.Identity.Tokenizer = "bpe" }, `tokenizer "bpe", now "byte"`},
		{func(s *loaderState) { s.Identity.Shuffle = false }, "shuffle false, now true"},
		{func(s *loaderState) { s.Identity.ShuffleWindow = 3 }, "a shuffle window of 3 documents, now 0"},
		{func(s *loaderState) { s.Identity.Seed = 2 }, "seed 2, now 1"},
		{func(s *loaderState) { s.Identity.Packing = Concatenate }, `packing "concatenate", now "first_fit"`},
		{func(s *loaderState) { s.Identity.SeqLen = 5 }, "rows of 5 tokens, now 4"},
		{func(s *loaderState) { s.Position.Sources[0].Document = 4 }, "document 4 of 4"},
		{func(s *loaderState) { s.Position.Sources[0].Document = -1 }, "document -1"},
		{func(s *loaderState) { s.Position.Sources[0].Epoch = -1 }, "epoch -1"},
		{func(s *loaderState) { s.Position.Sources[0].Tokens = -1 }, "-1 tokens of text"},
		{func(s *loaderState) { s.Position.Sources = nil }, "positions in 0 sources, not in 1"},
		{func(s *loaderState) { s.Position.Token = -1 }, "token -1"},
		{func(s *loaderState) { s.Position.Row = openRows }, "row 128"},
	} {
		err := l.Restore(change(t, l, test.change))
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "data: text: ") {
			t.Errorf("got %v, want ...%s", err, test.want)
		}
		if now := stateOf(t, l); now != good {
			t.Errorf("the refused state moved the loader to %s", now)
		}
	}
	if err := l.Restore([]byte("{")); !errors.Is(err, ErrState) {
		t.Errorf("not JSON: got %v", err)
	}
}

func TestRestoreRefusesOtherWeights(t *testing.T) {
	open := func(weight float64) *Loader {
		parts := []Weighted{{Documents("a", "abcdef"), weight}, {Documents("b", "ghi"), 1}}
		l, err := NewMixedLoader(context.Background(), parts, tokenizer.Byte{}, Options{SeqLen: 4, Rows: 1})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if err := open(2).Restore([]byte(stateOf(t, open(3)))); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "with weight 3 of a, now 2") {
		t.Errorf("got %v", err)
	}
}

// What lies beyond a document or a block is seen when it is read.
func TestRestoreBeyondTheText(t *testing.T) {
	for _, test := range []struct {
		packing Packing
		change  func(*loaderState)
		want    string
	}{
		{Concatenate, func(s *loaderState) { s.Position.Sources[0].Document, s.Position.Token = 3, 3 }, "token 3 of document 3 of text, which has 3"},
		{FirstFit, func(s *loaderState) { s.Position.Row = 4 }, "row 4 of a block of 4"},
	} {
		l := stateLoader(t, Options{Packing: test.packing, Passes: 1})
		if err := l.Restore(change(t, l, test.change)); err != nil {
			t.Fatal(err)
		}
		if err := l.Next(context.Background(), new(Batch)); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want ...%s", err, test.want)
		}
	}
}

// The seed orders nothing without a shuffle.
func TestRestoreIgnoresTheSeedOfNoShuffle(t *testing.T) {
	s := stateOf(t, stateLoader(t, Options{Seed: 1}))
	if err := stateLoader(t, Options{Seed: 2}).Restore([]byte(s)); err != nil {
		t.Error(err)
	}
}

func TestFingerprintFollowsTheText(t *testing.T) {
	one := Documents("a", "ab", "c").Fingerprint()
	if two := Documents("b", "ab", "c").Fingerprint(); one != two {
		t.Error("the name changes the fingerprint")
	}
	for _, other := range []Source{Documents("a", "a", "bc"), Documents("a", "c", "ab"), Documents("a", "ab", "d")} {
		if other.Fingerprint() == one {
			t.Error("other documents have the same fingerprint")
		}
	}
}

// FuzzRestore reads arbitrary bytes as a state: it is refused, or the loader works.
func FuzzRestore(f *testing.F) {
	for _, packing := range []Packing{Concatenate, FirstFit} {
		good := stateOf(f, stateLoader(f, Options{Seed: 1, Shuffle: true, Packing: packing}))
		f.Add([]byte(good), packing == FirstFit)
		f.Add([]byte(strings.Replace(good, `"token":0`, `"token":9223372036854775807`, 1)), packing == FirstFit)
		f.Add([]byte(strings.Replace(good, `"row":0`, `"row":100`, 1)), packing == FirstFit)
		f.Add([]byte(strings.Replace(good, `"epoch":0`, `"epoch":9223372036854775807`, 1)), packing == FirstFit)
		f.Add([]byte(strings.Replace(good, `"tokens":0`, `"tokens":9007199254740992`, 1)), packing == FirstFit)
	}
	f.Add([]byte(`{}`), false)
	f.Fuzz(func(t *testing.T, text []byte, firstFit bool) {
		o := Options{Seed: 1, Shuffle: true}
		if firstFit {
			o.Packing = FirstFit
		}
		l := stateLoader(t, o)
		if err := l.Restore(text); err != nil {
			if !errors.Is(err, ErrState) {
				t.Error(err)
			}
			return
		}
		var b Batch
		for range 8 {
			if err := l.Next(context.Background(), &b); err != nil {
				if !errors.Is(err, ErrState) {
					t.Error(err)
				}
				return
			}
			if err := b.Check(2, 4, 257); err != nil {
				t.Error(err)
			}
		}
	})
}
