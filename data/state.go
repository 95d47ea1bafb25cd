package data

import (
	"encoding/json"
	"errors"
	"strconv"
)

// ErrState is returned by Restore for a state that is not one of the loader's.
var ErrState = errors.New("state does not fit")

const stateVersion = 2

// loaderState is where a loader stands, with what makes that place mean the same text
// later. It does not depend on the rank, the number of ranks or Rows; with Concatenate
// it does not depend on SeqLen either.
type loaderState struct {
	Version  int           `json:"version"`
	Identity stateIdentity `json:"identity"`
	Position statePosition `json:"position"`
}

// stateIdentity is the same for all states of a loader.
type stateIdentity struct {
	Tokenizer     string        `json:"tokenizer"`
	Shuffle       bool          `json:"shuffle"`
	ShuffleWindow int           `json:"shuffle_window"`
	Seed          uint64        `json:"seed,string"` // a string, since JSON readers round numbers above 2⁵³
	Packing       Packing       `json:"packing"`
	SeqLen        int           `json:"seq_len"`
	Sources       []stateSource `json:"sources"`
}

type stateSource struct {
	Name        string  `json:"name"` // for messages only
	Fingerprint string  `json:"fingerprint"`
	Weight      float64 `json:"weight"`
}

type statePosition struct {
	Sources []partPlace `json:"sources"`
	Token   int         `json:"token"` // tokens completed of the document that is next
	Row     int         `json:"row"`   // rows completed of a FirstFit block
}

func (l *Loader) newIdentity() stateIdentity {
	o := l.options
	x := stateIdentity{Tokenizer: l.stream.tokenizer.Name(), Shuffle: o.Shuffle, ShuffleWindow: o.ShuffleWindow, Seed: o.Seed, Packing: o.Packing, SeqLen: o.SeqLen}
	if x.Packing == "" {
		x.Packing = Concatenate
	}
	for _, p := range l.stream.parts {
		x.Sources = append(x.Sources, stateSource{p.Source.Name(), p.Source.Fingerprint(), p.Weight})
	}
	return x
}

// identify writes a state up to its position.
func (l *Loader) identify() ([]byte, error) {
	text, err := json.Marshal(loaderState{Version: stateVersion, Identity: l.newIdentity()})
	if err != nil {
		return nil, err
	}
	const position = `"position":{"sources":null,"token":0,"row":0}}`
	return text[:len(text)-len(position)], nil
}

// AppendState appends the position of the next row, as JSON of a few hundred bytes. It
// is the same on every rank. It allocates nothing if there is room.
func (l *Loader) AppendState(to []byte) ([]byte, error) {
	l.packer.position(&l.now)
	to = append(to, l.identity...)
	to = append(to, `"position":{"sources":[`...)
	for i, p := range l.now.parts {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendInt(append(to, `{"epoch":`...), p.Epoch, 10)
		to = strconv.AppendInt(append(to, `,"document":`...), int64(p.Document), 10)
		to = strconv.AppendInt(append(to, `,"tokens":`...), p.Tokens, 10)
		to = append(to, '}')
	}
	to = strconv.AppendInt(append(to, `],"token":`...), int64(l.now.token), 10)
	to = strconv.AppendInt(append(to, `,"row":`...), int64(l.now.row), 10)
	return append(to, `}}`...), nil
}

// Restore goes to a position saved by a loader of the same sources, weights, tokenizer,
// order and packing; with FirstFit also of the same SeqLen. The error wraps [ErrState],
// names what differs and leaves the loader where it is. That the position lies within
// its document is seen by Next, which reads it.
func (l *Loader) Restore(state []byte) error {
	var s loaderState
	if err := json.Unmarshal(state, &s); err != nil {
		return l.stream.errorf("%w: %w", ErrState, err)
	}
	if s.Version != stateVersion {
		return l.stream.errorf("%w: it has version %d, this program reads %d", ErrState, s.Version, stateVersion)
	}
	if err := l.checkIdentity(s.Identity); err != nil {
		return err
	}
	if err := l.checkPosition(s.Position); err != nil {
		return err
	}
	l.packer.moveTo(&position{place{s.Position.Sources, s.Position.Token}, s.Position.Row})
	return nil
}

func (l *Loader) checkIdentity(was stateIdentity) error {
	now := l.newIdentity()
	differs := func(format string, arguments ...any) error {
		return l.stream.errorf("%w: it was saved "+format+": restore with what the state was saved with, or start the data anew", append([]any{ErrState}, arguments...)...)
	}
	if len(was.Sources) != len(now.Sources) {
		return differs("with %d sources, now there are %d", len(was.Sources), len(now.Sources))
	}
	for i, s := range was.Sources {
		n := now.Sources[i]
		if s.Fingerprint != n.Fingerprint {
			return differs("on other text (%s, fingerprint %q, now %s, %q)", s.Name, s.Fingerprint, n.Name, n.Fingerprint)
		}
		if len(was.Sources) > 1 && s.Weight != n.Weight {
			return differs("with weight %v of %s, now %v", s.Weight, n.Name, n.Weight)
		}
	}
	switch {
	case was.Tokenizer != now.Tokenizer:
		return differs("with tokenizer %q, now %q", was.Tokenizer, now.Tokenizer)
	case was.Shuffle != now.Shuffle:
		return differs("with shuffle %v, now %v", was.Shuffle, now.Shuffle)
	case was.Shuffle && was.ShuffleWindow != now.ShuffleWindow:
		return differs("with a shuffle window of %d documents, now %d", was.ShuffleWindow, now.ShuffleWindow)
	case was.Shuffle && was.Seed != now.Seed:
		return differs("with seed %d, now %d", was.Seed, now.Seed)
	case was.Packing != now.Packing:
		return differs("with packing %q, now %q", was.Packing, now.Packing)
	case was.Packing == FirstFit && was.SeqLen != now.SeqLen:
		return differs("with rows of %d tokens, now %d, which first-fit packs otherwise", was.SeqLen, now.SeqLen)
	}
	return nil
}

// maxCount bounds what is counted, so that sums do not overflow and are exact in float64.
const maxCount = 1 << 53

func (l *Loader) checkPosition(p statePosition) error {
	if len(p.Sources) != len(l.stream.parts) {
		return l.stream.errorf("%w: it has positions in %d sources, not in %d", ErrState, len(p.Sources), len(l.stream.parts))
	}
	for i, s := range p.Sources {
		source := l.stream.parts[i].Source
		if s.Epoch < 0 || s.Epoch > maxCount || s.Document < 0 || s.Document >= source.Len() || s.Tokens < 0 || s.Tokens > maxCount {
			return l.stream.errorf("%w: no such position: epoch %d, document %d of %d, %d tokens of %s", ErrState, s.Epoch, s.Document, source.Len(), s.Tokens, source.Name())
		}
	}
	most := 0
	if l.options.Packing == FirstFit {
		most = openRows - 1
	}
	if p.Token < 0 || p.Row < 0 || p.Row > most {
		return l.stream.errorf("%w: no such position: token %d, row %d of a block", ErrState, p.Token, p.Row)
	}
	return nil
}
