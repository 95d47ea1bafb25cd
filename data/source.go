package data

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/lethe-go/lethe/data/corpus"
)

// Source is a numbered list of documents. It must return the same documents
// whenever and in whatever order it is asked, for that is what makes a resume
// exact; it need not hold them in memory. Methods are safe for concurrent use.
type Source interface {
	// Name says where the text comes from, for messages.
	Name() string

	// Len is the number of documents.
	Len() int

	// Document returns the text of document i, 0 ≤ i < Len. It returns soon after ctx
	// ends if it waits for anything.
	Document(ctx context.Context, i int) (string, error)

	// Fingerprint changes when the documents do. A State is refused by a source
	// with another fingerprint.
	Fingerprint() string
}

// Corpus returns an embedded text by name ("moby_dick"), a document a chapter.
func Corpus(name string) (Source, error) {
	text, err := corpus.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	documents, err := text.Documents()
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return Documents(name, documents...), nil
}

// Documents returns a source of texts in memory. The slice becomes the source's.
func Documents(name string, texts ...string) Source {
	digest := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(digest, "%d:%s", len(text), text)
	}
	return &documents{name, texts, fingerprint(digest.Sum(nil))}
}

type documents struct {
	name        string
	texts       []string
	fingerprint string
}

func (d *documents) Name() string                                      { return d.name }
func (d *documents) Len() int                                          { return len(d.texts) }
func (d *documents) Document(_ context.Context, i int) (string, error) { return d.texts[i], nil }
func (d *documents) Fingerprint() string                               { return d.fingerprint }

// Concat returns the documents of several sources, end to end. A single source is
// returned as it is.
func Concat(sources ...Source) (Source, error) {
	if len(sources) == 1 {
		return sources[0], nil
	}
	c := &concat{sources: sources}
	var names []string
	digest := sha256.New()
	for _, s := range sources {
		names = append(names, s.Name())
		c.first = append(c.first, c.documents)
		c.documents += s.Len()
		fmt.Fprintf(digest, "%q\n", s.Fingerprint())
	}
	c.name, c.fingerprint = strings.Join(names, ","), fingerprint(digest.Sum(nil))
	if c.documents == 0 {
		return nil, fmt.Errorf("data: %s: %w: there is nothing to concatenate", c.name, ErrNoDocument)
	}
	return c, nil
}

type concat struct {
	name        string
	sources     []Source
	first       []int // number of each source's first document
	documents   int
	fingerprint string
}

func (c *concat) Name() string        { return c.name }
func (c *concat) Len() int            { return c.documents }
func (c *concat) Fingerprint() string { return c.fingerprint }

func (c *concat) Document(ctx context.Context, i int) (string, error) {
	at := holder(c.first, i)
	return c.sources[at].Document(ctx, i-c.first[at])
}

// holder finds who holds document i: the last whose first document is not after it.
func holder(first []int, i int) int {
	return sort.Search(len(first), func(k int) bool { return first[k] > i }) - 1
}

// Split holds out the last fraction of a source's documents, rounded up to whole
// documents. Both parts have at least one; the parts are named NAME/train and
// NAME/held_out.
func Split(s Source, fraction float64) (train, heldOut Source, err error) {
	n := s.Len()
	if !(fraction > 0 && fraction < 1) {
		return nil, nil, fmt.Errorf("data: %s: the fraction to hold out must be between 0 and 1: %v", s.Name(), fraction)
	}
	// The product may be a hair above a whole number: 0.1 of 30 is 3 documents.
	cut := n - int(math.Ceil(fraction*float64(n)*(1-1e-12)))
	if cut < 1 || cut >= n {
		return nil, nil, fmt.Errorf("data: %s: cannot hold out %v of %d documents: give the held-out text as a source of its own", s.Name(), fraction, n)
	}
	return &part{s, "train", 0, cut}, &part{s, "held_out", cut, n}, nil
}

// part is the documents [from, to) of another source.
type part struct {
	whole    Source
	name     string
	from, to int
}

func (p *part) Name() string { return p.whole.Name() + "/" + p.name }
func (p *part) Len() int     { return p.to - p.from }

func (p *part) Document(ctx context.Context, i int) (string, error) {
	return p.whole.Document(ctx, p.from+i)
}

func (p *part) Fingerprint() string {
	return fmt.Sprintf("%s[%d:%d]", p.whole.Fingerprint(), p.from, p.to)
}

func fingerprint(digest []byte) string { return hex.EncodeToString(digest[:8]) }
