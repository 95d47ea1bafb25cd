package data

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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

// The names in a saved state are a promise: change them only with the version.
func TestStateAsJSON(t *testing.T) {
	l := stateLoader(t, Options{Seed: 1<<63 + 1})
	if err := l.Next(context.Background(), new(Batch)); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(l.State())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"source":"text","fingerprint":"` + l.source.Fingerprint() +
		`","tokenizer":"byte","shuffle":false,"seed":"9223372036854775809","epoch":0,"document":2,"token":4}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRestoreRefusesWhatDoesNotFit(t *testing.T) {
	l := stateLoader(t, Options{Seed: 1, Shuffle: true})
	good := l.State()
	for _, test := range []struct {
		change func(*State)
		want   string
	}{
		{func(s *State) { s.Version = 2 }, "version 2"},
		{func(s *State) { s.Source, s.Fingerprint = "other", "f00" }, "saved on other text (other, fingerprint \"f00\""},
		{func(s *State) { s.Tokenizer = "bpe" }, `tokenizer "bpe", now "byte"`},
		{func(s *State) { s.Shuffle = false }, "shuffle false, now true"},
		{func(s *State) { s.Seed = 2 }, "seed 2, now 1"},
		{func(s *State) { s.Document = 4 }, "document 4 of 4"},
		{func(s *State) { s.Document = -1 }, "document -1"},
		{func(s *State) { s.Epoch = -1 }, "epoch -1"},
		{func(s *State) { s.Token = -1 }, "token -1"},
	} {
		s := good
		test.change(&s)
		err := l.Restore(s)
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "data: text: ") {
			t.Errorf("got %v, want ...%s", err, test.want)
		}
		if l.State() != good {
			t.Errorf("the refused state moved the loader to %+v", l.State())
		}
	}
}

func TestRestoreBeyondADocument(t *testing.T) {
	l := stateLoader(t, Options{})
	s := l.State()
	s.Document, s.Token = 3, 3
	if err := l.Restore(s); err != nil {
		t.Fatal(err)
	}
	if err := l.Next(context.Background(), new(Batch)); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "token 3 of document 3, which has 3") {
		t.Errorf("got %v", err)
	}
}

// The seed orders nothing without a shuffle.
func TestRestoreIgnoresTheSeedOfNoShuffle(t *testing.T) {
	s := stateLoader(t, Options{Seed: 1}).State()
	if err := stateLoader(t, Options{Seed: 2}).Restore(s); err != nil {
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
	good, _ := json.Marshal(stateLoader(f, Options{Seed: 1, Shuffle: true}).State())
	f.Add(good)
	f.Add([]byte(strings.Replace(string(good), `"token":0`, `"token":9223372036854775807`, 1)))
	f.Add([]byte(strings.Replace(string(good), `"epoch":0`, `"epoch":9223372036854775807`, 1)))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s State
		if json.Unmarshal(text, &s) != nil {
			return
		}
		l := stateLoader(t, Options{Seed: 1, Shuffle: true})
		// Only then does the position get to be tried.
		s.Fingerprint = l.source.Fingerprint()
		if err := l.Restore(s); err != nil {
			if !errors.Is(err, ErrState) {
				t.Error(err)
			}
			return
		}
		var b Batch
		for range 8 {
			if err := l.Next(context.Background(), &b); err != nil {
				if !errors.Is(err, ErrState) && err != io.EOF {
					t.Error(err)
				}
				return
			}
		}
	})
}
