package tokenizer

import "slices"

// EndOfDocument is the id of [Byte]'s only special token.
const EndOfDocument = 256

// Byte is the byte-level tokenizer: a byte is its own id, and id 256 ends a
// document. Any string, UTF-8 or not, decodes to itself.
type Byte struct{}

// Name returns "byte".
func (Byte) Name() string { return "byte" }

// Vocab returns 257: the bytes and the end of a document.
func (Byte) Vocab() int { return EndOfDocument + 1 }

// BOS returns -1: the end of a document is enough to tell two apart.
func (Byte) BOS() int32 { return -1 }

// EOS returns [EndOfDocument].
func (Byte) EOS() int32 { return EndOfDocument }

// Encode returns one id for each byte of text.
func (b Byte) Encode(text string) []int32 { return b.AppendEncode(nil, text) }

// AppendEncode appends one id for each byte of text.
func (Byte) AppendEncode(ids []int32, text string) []int32 {
	ids = slices.Grow(ids, len(text))
	for i := range len(text) {
		ids = append(ids, int32(text[i]))
	}
	return ids
}

// Decode returns the bytes of ids.
func (Byte) Decode(ids []int32) string {
	text := make([]byte, 0, len(ids))
	for _, id := range ids {
		if id >= 0 && id < EndOfDocument {
			text = append(text, byte(id))
		}
	}
	return string(text)
}
