package call

import (
	"fmt"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// Header is what one other rank must know of a call to agree with it.
type Header struct {
	Kind     collective.Kind
	DType    device.DType
	Rank     int8 // of the tensor
	Dims     [device.MaxRank]int
	Root     int
	Sequence int
	// Sends and Expects are the rows of an all-to-all for that rank and from it.
	Sends, Expects int
	Node           string
}

// Header for rank peer of a group of size ranks.
func (c *Call) Header(peer, size int) Header {
	h := Header{Kind: c.Kind, Root: c.Root, Sequence: c.Sequence, Node: c.Caller.Node}
	if c.Kind == collective.KindBarrier {
		return h
	}
	t := c.In
	if c.Kind == collective.KindAllGather {
		t = c.Out // says how long the parts are, which do not say how long it is
	}
	h.DType, h.Rank = t.DType(), int8(t.Rank())
	for i := range t.Rank() {
		h.Dims[i] = t.Dim(i)
	}
	if c.Kind == collective.KindAllToAll {
		h.Dims[0] = 0 // differs between ranks
		h.Sends, h.Expects = Split(c.Send, c.In, peer, size), Split(c.Receive, c.Out, peer, size)
	}
	return h
}

func (h *Header) String() string {
	s := Name(h.Kind, h.Sequence, h.Node)
	if h.Kind == collective.KindBarrier {
		return s
	}
	s += fmt.Sprintf(" of %v%v", h.DType, h.Dims[:h.Rank])
	if h.Kind == collective.KindBroadcast {
		s += fmt.Sprintf(" from root %d", h.Root)
	}
	return s
}

// Agree compares the header that rank a has for rank b with the one that b has for a.
func Agree(a int, mine *Header, b int, other *Header) error {
	if mine.Kind == other.Kind && mine.Sequence == other.Sequence && mine.Root == other.Root && mine.DType == other.DType &&
		mine.Rank == other.Rank && mine.Dims == other.Dims && mine.Sends == other.Expects && mine.Expects == other.Sends {
		return nil
	}
	return mismatch(a, *mine, b, *other) // copies, so that only an error allocates
}

func mismatch(a int, mine Header, b int, other Header) error {
	counts := mine
	counts.Sends, counts.Expects, counts.Node = other.Sends, other.Expects, other.Node
	if counts != other {
		return fmt.Errorf("%w: rank %d calls %v, rank %d calls %v", collective.ErrMismatch, a, &mine, b, &other)
	}
	if mine.Sends == other.Expects {
		a, mine, b, other = b, other, a, mine
	}
	return fmt.Errorf("%w: rank %d in %v sends %d rows to rank %d, which in %v expects %d", collective.ErrMismatch,
		a, &mine, mine.Sends, b, &other, other.Expects)
}
