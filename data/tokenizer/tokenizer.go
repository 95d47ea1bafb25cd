// Package tokenizer turns text into token ids and back.
//
// An id is an int32 in [0, Vocab). Special tokens have ids that no text encodes
// to: [Tokenizer.BOS] before a document, [Tokenizer.EOS] after it. A tokenizer
// without one of them returns -1 for it. Encode never emits a special token; who
// packs documents adds them.
//
// A model's vocabulary may be larger than its tokenizer's, never smaller.
package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

// Tokenizer encodes and decodes text. Its methods are safe for concurrent use.
type Tokenizer interface {
	// Name is what a configuration file and a saved state call the tokenizer.
	Name() string

	// Vocab is the number of ids, special tokens included.
	Vocab() int

	// BOS is the id put before a document, or -1.
	BOS() int32

	// EOS is the end-of-document id, or -1.
	EOS() int32

	// Encode returns the ids of text. The slice is the caller's.
	Encode(text string) []int32

	// AppendEncode appends the ids of text to ids and returns it, so that a loop
	// over documents need not allocate.
	AppendEncode(ids []int32, text string) []int32

	// Decode returns the text of ids. Special tokens and ids outside the
	// vocabulary have no text.
	Decode(ids []int32) string
}

// ErrUnknown is returned by [Lookup] for a name that no tokenizer has.
var ErrUnknown = errors.New("unknown tokenizer")

var tokenizers = []Tokenizer{Byte{}}

// Lookup returns a built-in tokenizer by its name. The error wraps [ErrUnknown].
func Lookup(name string) (Tokenizer, error) {
	names := make([]string, len(tokenizers))
	for i, t := range tokenizers {
		if t.Name() == name {
			return t, nil
		}
		names[i] = t.Name()
	}
	return nil, fmt.Errorf("tokenizer: %w: %q: known are %s", ErrUnknown, name, strings.Join(names, ", "))
}
