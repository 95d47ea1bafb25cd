//go:build mpi

package mpi

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/lethe-go/lethe/collective"
)

// control carries what groups say outside of collectives: that a rank opens one, and that
// it has failed.
type control struct {
	communicator
	requests requests
	incoming []byte // C's memory
	received func(slot, error)
	arrived  bool
	// early holds what came for groups that this rank has not opened, or for later
	// generations of those it has.
	early []notice
}

// notice is one message.
type notice struct {
	kind       noticeKind
	cause      causeKind // of an abort
	group      uint64
	generation uint32
	rank       uint32 // of the sender in the group
	index      uint32 // of a hello: the least that is free on the sender
	text       string // of an abort
}

type noticeKind uint8

const (
	hello noticeKind = iota
	abort
)

// causeKind keeps what errors.Is can tell of a cause.
type causeKind uint8

const (
	otherCause causeKind = iota
	timeoutCause
	mismatchCause
)

var sentinels = [...]error{timeoutCause: collective.ErrTimeout, mismatchCause: collective.ErrMismatch}

// noticeBytes is the size of every notice; longer texts are cut.
const (
	noticeBytes  = 2048
	noticeHeader = 2 + 8 + 4 + 4 + 4 + 2
	noticeTag    = 1
)

func (n *notice) encode(b []byte) {
	b[0], b[1] = byte(n.kind), byte(n.cause)
	binary.LittleEndian.PutUint64(b[2:], n.group)
	binary.LittleEndian.PutUint32(b[10:], n.generation)
	binary.LittleEndian.PutUint32(b[14:], n.rank)
	binary.LittleEndian.PutUint32(b[18:], n.index)
	binary.LittleEndian.PutUint16(b[22:], uint16(copy(b[noticeHeader:], n.text)))
}

func decodeNotice(b []byte) notice {
	length := min(int(binary.LittleEndian.Uint16(b[22:])), len(b)-noticeHeader)
	return notice{kind: noticeKind(b[0]), cause: causeKind(b[1]), group: binary.LittleEndian.Uint64(b[2:]),
		generation: binary.LittleEndian.Uint32(b[10:]), rank: binary.LittleEndian.Uint32(b[14:]),
		index: binary.LittleEndian.Uint32(b[18:]), text: string(b[noticeHeader : noticeHeader+length])}
}

// remote is the cause of an abort on another rank.
type remote struct {
	text string
	kind causeKind
}

func (r *remote) Error() string { return r.text }
func (r *remote) Unwrap() error {
	if r.kind == otherCause || int(r.kind) >= len(sentinels) {
		return nil
	}
	return sentinels[r.kind]
}

func causeOf(err error) causeKind {
	switch {
	case errors.Is(err, collective.ErrTimeout):
		return timeoutCause
	case errors.Is(err, collective.ErrMismatch):
		return mismatchCause
	}
	return otherCause
}

func (c *control) start(t *thread) (err error) {
	if c.communicator, err = duplicate(); err != nil {
		return err
	}
	c.incoming = unsafe.Slice((*byte)(grow(nil, noticeBytes)), noticeBytes)
	c.received = func(s slot, err error) {
		c.arrived = c.arrived || s.receive && err == nil
	}
	return c.listen()
}

func (c *control) listen() error {
	return c.requests.receive(&c.communicator, c.incoming, anyRank, noticeTag, slot{receive: true})
}

// send tells all other ranks of a group.
func (c *control) send(t *thread, g *group, n notice) {
	n.group, n.generation, n.rank = g.id, g.generation, uint32(g.rank)
	for _, r := range g.ranks {
		if r == t.rank {
			continue
		}
		p := grow(nil, noticeBytes)
		b := unsafe.Slice((*byte)(p), noticeBytes)
		n.encode(b)
		if c.requests.send(&c.communicator, b, r, noticeTag, slot{buffer: p}) != nil {
			free(p) // the rank is gone; those who wait for it have a deadline
		}
	}
}

func (c *control) poll(t *thread) (progress, busy bool) {
	for {
		c.arrived = false
		p, err := c.requests.test(c.received)
		if err != nil || !p {
			return progress, c.requests.live > 1
		}
		progress = true
		if !c.arrived {
			continue
		}
		n := decodeNotice(c.incoming)
		if err := c.listen(); err != nil {
			return true, false
		}
		t.heed(n)
	}
}

// heed acts on a notice, or keeps it for later.
func (t *thread) heed(n notice) {
	g, known := t.groups[n.group]
	switch {
	case known && (g == nil || n.generation < g.generation):
		// It is of the past.
	case !known || n.generation > g.generation:
		t.control.early = append(t.control.early, n)
	case n.kind == hello:
		g.greets(t, int(n.rank), n.index)
	default:
		g.stop(t, &remote{n.text, n.cause})
	}
}

// heedEarly acts on what came too early for a group: on aborts first, so that nobody opens a
// group that has ended.
func (t *thread) heedEarly() {
	early := t.control.early
	t.control.early = nil
	slices.SortStableFunc(early, func(a, b notice) int { return cmp.Compare(b.kind, a.kind) })
	for _, n := range early {
		t.heed(n)
	}
}

// finish gives up listening once all notices have been sent. What has not gone after a
// second is left to MPI_Finalize.
func (c *control) finish() error {
	c.requests.cancel()
	for begin := time.Now(); c.requests.live > 0 && time.Since(begin) < time.Second; {
		if progress, err := c.requests.test(c.received); err != nil {
			return err
		} else if !progress {
			time.Sleep(firstRest)
		}
	}
	if c.requests.live > 0 {
		return nil
	}
	c.requests.free()
	free(unsafe.Pointer(unsafe.SliceData(c.incoming)))
	return c.free()
}
