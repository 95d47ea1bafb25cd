package generate

import (
	"iter"
	"unicode/utf8"

	"github.com/lethe-go/lethe/data/tokenizer"
)

// Text yields the text of tokens as it becomes complete: a character whose bytes come
// from several tokens is held back until the last of them is there. Bytes that are no
// UTF-8, and a character that never becomes complete, are U+FFFD.
func Text(t tokenizer.Tokenizer, tokens iter.Seq2[int32, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var held []byte
		for id, err := range tokens {
			if err != nil {
				if len(held) == 0 || yield(string(utf8.RuneError), nil) {
					yield("", err)
				}
				return
			}
			held = append(held, t.Decode([]int32{id})...)
			var text []byte
			text, held = complete(held)
			if len(text) > 0 && !yield(string(text), nil) {
				return
			}
		}
		if len(held) > 0 {
			yield(string(utf8.RuneError), nil)
		}
	}
}

// complete takes from b all but the beginning of a character at its end.
func complete(b []byte) (text, rest []byte) {
	for len(b) > 0 && utf8.FullRune(b) {
		r, n := utf8.DecodeRune(b)
		text = utf8.AppendRune(text, r) // U+FFFD for a byte that begins nothing
		b = b[n:]
	}
	return text, b
}
