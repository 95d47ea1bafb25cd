package data

import "errors"

// ErrState is returned by [Loader.Restore] for a state that is not one of the
// loader's.
var ErrState = errors.New("state does not fit")

// State is where a loader stands, with what makes that place mean the same text
// later. It is saved as JSON. It does not depend on the rank, the number of ranks,
// Rows or SeqLen.
type State struct {
	Version     int    `json:"version"`
	Source      string `json:"source"` // its name, for messages only
	Fingerprint string `json:"fingerprint"`
	Tokenizer   string `json:"tokenizer"`
	Shuffle     bool   `json:"shuffle"`
	Seed        uint64 `json:"seed,string"` // a string, since JSON readers round numbers above 2⁵³

	Epoch    int64 `json:"epoch"`    // passes completed
	Document int   `json:"document"` // documents of this epoch completed, in the epoch's order
	Token    int   `json:"token"`    // tokens of the document completed
}

const stateVersion = 1

// State returns the position of the next row.
func (l *Loader) State() State {
	return State{
		Version:     stateVersion,
		Source:      l.source.Name(),
		Fingerprint: l.source.Fingerprint(),
		Tokenizer:   l.tokenizer.Name(),
		Shuffle:     l.options.Shuffle,
		Seed:        l.options.Seed,
		Epoch:       l.position.epoch,
		Document:    l.position.document,
		Token:       l.position.token,
	}
}

// Restore goes to a position saved by a loader of the same source, tokenizer and
// order. The error wraps [ErrState], names what differs and leaves the loader where
// it is. That a token lies within its document is seen by Next, which reads it.
func (l *Loader) Restore(s State) error {
	now := l.State()
	const otherwise = "restore with what the state was saved with, or start the data anew"
	switch {
	case s.Version != stateVersion:
		return l.errorf("%w: it has version %d, this program reads %d", ErrState, s.Version, stateVersion)
	case s.Fingerprint != now.Fingerprint:
		return l.errorf("%w: it was saved on other text (%s, fingerprint %q, now %q): %s", ErrState, s.Source, s.Fingerprint, now.Fingerprint, otherwise)
	case s.Tokenizer != now.Tokenizer:
		return l.errorf("%w: it was saved with tokenizer %q, now %q: %s", ErrState, s.Tokenizer, now.Tokenizer, otherwise)
	case s.Shuffle != now.Shuffle:
		return l.errorf("%w: it was saved with shuffle %v, now %v: %s", ErrState, s.Shuffle, now.Shuffle, otherwise)
	case s.Seed != now.Seed && s.Shuffle:
		return l.errorf("%w: it was saved with seed %d, now %d: %s", ErrState, s.Seed, now.Seed, otherwise)
	case s.Epoch < 0 || s.Document < 0 || s.Document >= l.source.Len() || s.Token < 0:
		return l.errorf("%w: no such position: epoch %d, document %d of %d, token %d", ErrState, s.Epoch, s.Document, l.source.Len(), s.Token)
	}
	l.moveTo(position{s.Epoch, s.Document, s.Token})
	return nil
}
