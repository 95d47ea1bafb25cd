//go:build mpi

package mpi

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
	"github.com/lethe-go/lethe/device"
)

// group is one rank's end. A call has one or more rounds: the caller says which bytes go
// where and waits while the thread moves them, then adds up what has come and says what
// goes next.
type group struct {
	call.End
	name   string
	thread *thread
	id     uint64
	rank   int
	ranks  []int // of the world

	// The caller's.
	lent    runtime.Pinner // tensors on the Go heap while MPI has them
	scratch memory
	terms   []unsafe.Pointer // of a sum, by rank

	// The caller's, and the thread's from a command to its answer.
	out, in  []span // of the round, by rank
	answered chan error

	course // the thread's
}

// span is memory that goes to a rank or comes from it.
type span struct {
	p unsafe.Pointer
	n int64
}

func newGroup(t *thread, id uint64, rank int, ranks []int, o Options) *group {
	n := len(ranks)
	g := &group{name: o.Name, thread: t, id: id, rank: rank, ranks: ranks, answered: make(chan error, 1),
		terms: make([]unsafe.Pointer, n), out: make([]span, n), in: make([]span, n)}
	g.End = call.NewEnd(g, o.Timeout)
	g.course.init(g)
	return g
}

func (g *group) Name() string { return g.name }
func (g *group) Rank() int    { return g.rank }
func (g *group) Size() int    { return len(g.ranks) }

// open waits for the other ranks to open the group.
func (g *group) open(ctx context.Context) error {
	if err := g.thread.submit(command{kind: openGroup, group: g}); err != nil {
		return err
	}
	return g.wait(ctx, nil)
}

// Abort ends the group. The first cause is kept.
func (g *group) Abort(cause error) {
	g.thread.submit(command{kind: abortGroup, group: g, err: cause})
}

// Renew makes a group that was aborted usable again. The ranks agree on that in their
// next call.
func (g *group) Renew() {
	g.Restart()
	g.thread.submit(command{kind: renewGroup, group: g})
}

// Close gives up this rank's end; later calls return [ErrClosed]. No rank may be in a
// call.
func (g *group) Close() error {
	if g.thread.submit(command{kind: closeGroup, group: g}) == nil {
		<-g.answered
	}
	return nil
}

// Run does this rank's part of one collective.
func (g *group) Run(ctx context.Context, c *call.Call, deadline <-chan time.Time) error {
	g.lend(c.Out, c.In)
	defer g.lent.Unpin()
	return g.rounds(ctx, deadline)
}

// round hands the spans to the thread, does own meanwhile, and waits until all have gone
// and come.
func (g *group) round(ctx context.Context, deadline <-chan time.Time, kind commandKind, own func(*group)) error {
	if err := g.thread.submit(command{kind: kind, group: g}); err != nil {
		return err
	}
	if own != nil {
		own(g)
	}
	return g.wait(ctx, deadline)
}

// wait returns the thread's answer, which comes soon when the context or the deadline has
// ended.
func (g *group) wait(ctx context.Context, deadline <-chan time.Time) error {
	var reason error
	select {
	case err := <-g.answered:
		return err
	case <-g.thread.ended:
		return g.last()
	case <-deadline:
		reason = collective.ErrTimeout
	case <-ctx.Done():
		reason = context.Cause(ctx)
	}
	if g.thread.submit(command{kind: leaveCall, group: g, err: reason}) != nil {
		return g.last()
	}
	select {
	case err := <-g.answered:
		return err
	case <-g.thread.ended:
		return g.last()
	case <-time.After(hanging):
		knowledge.Lock()
		defer knowledge.Unlock()
		return fmt.Errorf("%w; MPI hangs, and its messages are still under way", g.without(g.thread, reason))
	}
}

// last is the answer of a thread that has ended, which may have been given before.
func (g *group) last() error {
	select {
	case err := <-g.answered:
		return err
	default:
		return ErrClosed
	}
}

// lend keeps tensors that may be on the Go heap where they are while MPI has them.
func (g *group) lend(out, in device.Tensor) {
	if out.IsZero() || out.Bytes() == 0 && in.Bytes() == 0 {
		return
	}
	p, q := out.Pointer(), in.Pointer()
	if p != nil {
		g.lent.Pin(p)
	}
	if q != nil && q != p {
		g.lent.Pin(q)
	}
}
