//go:build mpi

package mpi

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
)

// course is what the thread knows of a group: where its call stands, and its messages.
type course struct {
	phase  phase
	active bool // among those that the thread polls
	waits  bool // a caller waits for an answer

	// The number that makes the tags of the group, agreed upon by greetings.
	generation uint32
	index      uint32
	greeted    []bool
	opening    bool // the caller waits for the greetings

	requests requests
	headers  memory // a message to each rank, then one from each
	fault    error  // found while requests were tested
	seen     func(slot, error)

	cause  error // wraps ErrAborted once the group has failed
	answer error // of the call that failed
	failed time.Time
	strays requests // what others sent to a group that had failed
	past   []past
}

// past is a number that a group had when it failed. What others send with its tags is
// received for a while and dropped, so that their calls can end.
type past struct {
	index uint32
	until time.Time
}

// phase of a group.
type phase uint8

const (
	greeting phase = iota // not all ranks have opened or renewed it
	resting
	meeting  // headers are under way
	moving   // data is under way
	stopping // messages of a call that failed are under way
	lost     // they will be for ever
)

// mercy is how long messages to and from other ranks are given to end once a call has
// failed; strayTime is how long those of other ranks are received after that, and hanging how
// long the thread may take to answer.
const (
	mercy     = 2 * time.Second
	strayTime = mercy + time.Second
	hanging   = mercy + time.Second
)

const messageBytes = headerBytes + inlineBytes

// maxMessage bounds a message of data, so that no count overflows MPI's int and a stray one
// needs little memory.
const maxMessage = 64 << 20

func (k *course) init(g *group) {
	k.greeted = make([]bool, g.Size())
	k.seen = func(s slot, err error) { g.sees(s, err) }
}

const (
	headerTag = iota
	dataTag
	tagsOfGroup
)

func (g *group) tag(kind int) int    { return tag(g.index, kind) }
func tag(index uint32, kind int) int { return int(index)*tagsOfGroup + kind }

// outgoing and incoming are the header messages to and from a rank.
func (g *group) outgoing(r int) []byte { return g.message(r) }
func (g *group) incoming(r int) []byte { return g.message(g.Size() + r) }

func (g *group) message(i int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(g.headers.p, i*messageBytes)), messageBytes)
}

// open takes a group into the list and greets the others.
func (t *thread) open(g *group) {
	t.groups[g.id] = g
	g.headers.atLeast(int64(2 * g.Size() * messageBytes))
	g.waits, g.opening = true, true
	t.activate(g)
	g.greet(t)
}

// greet tells the others the least number that is free here.
func (g *group) greet(t *thread) {
	g.phase = greeting
	g.index = t.index
	t.index++
	clear(g.greeted)
	t.control.send(t, g, notice{kind: hello, index: g.index})
	g.greets(t, g.rank, g.index)
	t.heedEarly()
}

// greets notes a greeting. With the last one the largest number is the group's: no two
// groups that a rank is in have the same.
func (g *group) greets(t *thread, rank int, index uint32) {
	if g.phase != greeting || rank >= len(g.greeted) {
		return
	}
	g.greeted[rank] = true
	g.index = max(g.index, index)
	if slices.Contains(g.greeted, false) {
		return
	}
	g.phase = resting
	t.index = max(t.index, g.index+1)
	switch {
	case g.tag(tagsOfGroup) > t.tags:
		g.fail(t, fmt.Errorf("mpi: group %q is number %d and %s has tags for %d only", g.Name(), g.index, t.library, t.tags/tagsOfGroup))
	case g.opening:
		g.opening = false
		g.reply(nil)
	case g.waits:
		g.meet(t)
	}
}

// start begins a call.
func (g *group) start(t *thread) {
	g.waits = true
	t.activate(g)
	switch g.phase {
	case resting, greeting:
		if g.cause != nil {
			g.reply(g.cause)
		} else if g.phase == resting {
			g.meet(t)
		}
	default:
		g.reply(g.cause)
	}
}

// meet sends this rank's headers and waits for the others'.
func (g *group) meet(t *thread) {
	g.phase = meeting
	for r, peer := range g.ranks {
		if r == g.rank {
			continue
		}
		s := slot{rank: r, receive: true, header: true}
		if err := g.requests.receive(&t.data, g.incoming(r), peer, g.tag(headerTag), s); err != nil {
			g.fault = err
			break
		}
		b, h := g.outgoing(r), g.Call.Header(r, g.Size())
		encodeHeader(b, &h)
		n := int64(headerBytes)
		if out := g.out[r]; out.n <= inlineBytes {
			n += int64(copy(b[headerBytes:], out.bytes()))
		}
		if err := g.requests.send(&t.data, b[:n], peer, g.tag(headerTag), slot{rank: r, header: true}); err != nil {
			g.fault = err
			break
		}
	}
	g.advance(t)
}

func (s span) bytes() []byte { return unsafe.Slice((*byte)(s.p), s.n) }

// sees is told of each message that is done.
func (g *group) sees(s slot, err error) {
	switch {
	case g.phase == stopping:
	case err != nil:
		g.fault = fmt.Errorf("%v: rank %d: %w", &g.Call, s.rank, err)
	case s.header && s.receive:
		if err := g.agrees(s.rank); err != nil && g.fault == nil {
			g.fault = err
		}
	}
}

// agrees compares the header that has come from a rank with this rank's own.
func (g *group) agrees(r int) error {
	mine := g.Call.Header(r, g.Size())
	b := g.incoming(r)
	other, err := decodeHeader(b)
	if err != nil {
		return fmt.Errorf("%v: rank %d sent %w", &g.Call, r, err)
	}
	if call.Agree(g.rank, &mine, r, &other) == nil {
		return nil
	}
	other.Node = nodeOf(b)
	return call.Agree(g.rank, &mine, r, &other)
}

// advance goes on to the next phase when all messages of this one are done.
func (g *group) advance(t *thread) {
	switch {
	case g.fault != nil:
		err := g.fault
		g.fault = nil
		g.fails(t, t.blames(g, err))
		return
	case g.requests.live > 0:
		return
	}
	switch g.phase {
	case meeting:
		g.Meet()
		for r := range g.ranks {
			if in := g.in[r]; r != g.rank && in.n <= inlineBytes {
				copy(in.bytes(), g.incoming(r)[headerBytes:])
			}
		}
		g.move(t, inlineBytes)
	case moving:
		g.phase = resting
		g.reply(nil)
	}
}

// continues begins another round of a call.
func (g *group) continues(t *thread) {
	g.waits = true
	t.activate(g)
	if g.cause != nil {
		g.reply(g.cause)
		return
	}
	g.move(t, 0)
}

// move sends and receives the spans of more than least bytes.
func (g *group) move(t *thread, least int64) {
	g.phase = moving
	for i := range g.ranks {
		r := (g.rank + i) % g.Size() // not all to rank 0 first
		if r == g.rank {
			continue
		}
		g.split(g.in[r], least, func(b []byte) error {
			return g.requests.receive(&t.data, b, g.ranks[r], g.tag(dataTag), slot{rank: r, receive: true})
		})
		g.split(g.out[r], least, func(b []byte) error {
			return g.requests.send(&t.data, b, g.ranks[r], g.tag(dataTag), slot{rank: r})
		})
	}
	g.advance(t)
}

// split makes messages of a span.
func (g *group) split(s span, least int64, add func([]byte) error) {
	if s.n <= least {
		return
	}
	for b := s.bytes(); len(b) > 0 && g.fault == nil; {
		n := min(len(b), maxMessage)
		g.fault = add(b[:n])
		b = b[n:]
	}
}

// reply ends the call.
func (g *group) reply(err error) {
	if g.waits {
		g.waits, g.opening = false, false
		g.answered <- err
	}
}

// leave gives up a call, unless it is over, because a context has ended or the deadline
// has passed.
func (g *group) leave(t *thread, reason error) {
	// A process that was stopped finds its deadline passed and all messages there.
	for polls := 0; ; polls++ {
		if !g.waits || g.phase == stopping {
			return
		}
		if polls == eagerPolls {
			break
		}
		t.control.poll(t)
		g.poll(t)
	}
	g.fails(t, g.without(t, reason))
}

// without adds to the reason to leave who is missing.
func (g *group) without(t *thread, reason error) error {
	missing := g.missing()
	switch {
	case g.opening:
		return fmt.Errorf("mpi: group %q: ranks %v have not opened it: %w", g.Name(), missing, reason)
	case errors.Is(reason, collective.ErrTimeout):
		return fmt.Errorf("%w: %v waited %v for ranks %v%s", reason, &g.Call, g.Timeout, missing, t.states(g, missing))
	}
	return reason
}

// doing is what the caller waits for.
func (g *group) doing() string {
	if g.opening {
		return fmt.Sprintf("opening the group %q", g.Name())
	}
	return g.Call.String()
}

// missing lists the ranks that this one waits for.
func (g *group) missing() []int {
	var ranks []int
	for r := range g.ranks {
		absent := false
		switch g.phase {
		case greeting:
			absent = !g.greeted[r]
		case meeting, moving: // what is sent may not be taken either
			absent = slices.ContainsFunc(g.requests.slots, func(s slot) bool { return s.rank == r && !s.done })
		}
		if absent {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// fails ends the group because of this rank's call, which returns err.
func (g *group) fails(t *thread, err error) {
	g.answer = err
	g.fail(t, fmt.Errorf("rank %d: %w", g.rank, err))
}

// fail ends the group and tells the others. The first cause is kept.
func (g *group) fail(t *thread, cause error) {
	if g.cause == nil {
		t.control.send(t, g, notice{kind: abort, cause: causeOf(cause), text: cause.Error()})
		g.stop(t, cause)
	}
}

// stop ends the group. Its call returns when no message touches its tensors any more.
func (g *group) stop(t *thread, cause error) {
	if g.cause != nil {
		return
	}
	g.cause = fmt.Errorf("%w: %w", collective.ErrAborted, cause)
	if g.answer == nil {
		g.answer = g.cause
	}
	g.failed = time.Now()
	if g.phase != greeting {
		g.past = append(g.past, past{g.index, g.failed.Add(strayTime)})
	}
	t.activate(g)
	g.phase = stopping
	g.requests.cancel()
	g.stopped()
}

// stopped answers the caller when the last message is done, or has had its time.
func (g *group) stopped() {
	switch {
	case g.requests.live == 0:
		g.phase = resting
		g.reply(g.answer)
	case time.Since(g.failed) > mercy:
		g.phase = lost
		var ranks []int
		for _, s := range g.requests.slots {
			if !s.done && !slices.Contains(ranks, s.rank) {
				ranks = append(ranks, s.rank)
			}
		}
		g.reply(fmt.Errorf("%w; messages with ranks %v are still under way", g.answer, ranks))
	}
}

// poll makes progress. It is busy if a caller waits, and over if nothing can come.
func (g *group) poll(t *thread) (progress, busy bool) {
	progress, err := g.requests.test(g.seen)
	if err != nil && g.fault == nil {
		g.fault = err
	}
	switch g.phase {
	case meeting, moving:
		if progress || g.fault != nil {
			g.advance(t)
		}
	case stopping:
		g.stopped()
	}
	if len(g.past) > 0 && g.receiveStray(t) {
		progress = true
	}
	return progress, g.waits
}

// over reports whether the group needs no polls until its next command.
func (g *group) over() bool {
	return !g.waits && len(g.past) == 0
}

// receiveStray receives and drops what belongs to the past.
func (g *group) receiveStray(t *thread) bool {
	if g.strays.live > 0 {
		progress, _ := g.strays.test(func(slot, error) {})
		return progress
	}
	for _, p := range g.past {
		for kind := range tagsOfGroup {
			if g.drop(t, tag(p.index, kind)) {
				return true
			}
		}
	}
	now := time.Now()
	g.past = slices.DeleteFunc(g.past, func(p past) bool { return now.After(p.until) })
	return false
}

// drop receives a message with a tag, if there is one.
func (g *group) drop(t *thread, tag int) bool {
	from, n, err := t.data.probe(tag)
	if err != nil || from < 0 {
		return false
	}
	p := grow(nil, max(1, n))
	if err := g.strays.receive(&t.data, unsafe.Slice((*byte)(p), n), from, tag, slot{receive: true, buffer: p}); err != nil {
		free(p)
		return false
	}
	return true
}

// renew begins the next generation, with new tags: messages of the past never meet it.
func (g *group) renew(t *thread) {
	if g.phase == lost || g.opening {
		return
	}
	g.generation++
	g.cause, g.answer, g.fault = nil, nil, nil
	t.activate(g)
	g.greet(t)
}

// release frees what a group has. Messages that never end keep their memory.
func (g *group) release(t *thread) {
	g.cause, g.answer = ErrClosed, ErrClosed
	g.reply(ErrClosed)
	if g.requests.live == 0 && g.strays.live == 0 {
		g.requests.free()
		g.strays.free()
		g.headers.free()
	}
}
