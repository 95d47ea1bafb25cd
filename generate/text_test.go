package generate

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lethe-go/lethe/data/tokenizer"
)

// bytesOf yields the bytes of text as tokens, and then an error if there is one.
func bytesOf(text string, err error) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		for _, b := range []byte(text) {
			if !yield(int32(b), nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

func TestTextIsWholeCharacters(t *testing.T) {
	for _, x := range []struct {
		bytes string
		want  []string
	}{
		{"", nil},
		{"aé—𝄞", []string{"a", "é", "—", "𝄞"}},
		{"a\xff\x80b", []string{"a", "�", "�", "b"}},
		{"\xe2\x80b", []string{"��b"}}, // seen to be wrong by the b
		{"a\xe2\x80", []string{"a", "�"}},
	} {
		var got []string
		for s, err := range Text(tokenizer.Byte{}, bytesOf(x.bytes, nil)) {
			check(t, err)
			got = append(got, s)
		}
		if strings.Join(got, "|") != strings.Join(x.want, "|") {
			t.Errorf("%q: %q, want %q", x.bytes, got, x.want)
		}
	}
}

func TestTextPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	var text []string
	for s, err := range Text(tokenizer.Byte{}, bytesOf("a\xe2", broken)) {
		if text = append(text, s); err != nil && err != broken {
			t.Error(err)
		}
	}
	if !slices.Equal(text, []string{"a", "�", ""}) {
		t.Errorf("%q", text)
	}
	for range Text(tokenizer.Byte{}, bytesOf("abc", broken)) {
		break // and nothing is yielded afterwards, which would panic
	}
}

func FuzzText(f *testing.F) {
	f.Add("Call me Ishmael—")
	f.Add("\xe2\x80\xff\xf0\x9d\x84")
	f.Fuzz(func(t *testing.T, bytes string) {
		var got strings.Builder
		for s, err := range Text(tokenizer.Byte{}, bytesOf(bytes, nil)) {
			check(t, err)
			if s == "" || !utf8.ValidString(s) {
				t.Errorf("%q: yields %q", bytes, s)
			}
			got.WriteString(s)
		}
		if utf8.ValidString(bytes) && got.String() != bytes {
			t.Errorf("%q came out as %q", bytes, got.String())
		}
	})
}
