package call

import (
	"context"
	"fmt"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// Backend moves the data of one rank's end of a group.
type Backend interface {
	Rank() int
	Size() int
	Abort(cause error)

	// Run does this rank's part of a call that has been checked. The deadline is nil if
	// there is none. The call stays as it is until the next one.
	Run(ctx context.Context, c *Call, deadline <-chan time.Time) error
}

// End is what all backends' ends of a group share: the collectives of [collective.Group],
// each named, checked and given a deadline before [Backend.Run] does it. It makes a group
// [collective.Annotated], [collective.Observed] and [collective.Timed].
type End struct {
	// Call is the last one.
	Call Call
	// Timeout of each collective; 0 means none.
	Timeout time.Duration

	backend  Backend
	sequence int               // collectives begun by this rank
	caller   collective.Caller // of the next one
	met      func()            // see Observe
	timer    *time.Timer       // of the deadline
}

// NewEnd returns the end of the backend that embeds it.
func NewEnd(b Backend, timeout time.Duration) End { return End{backend: b, Timeout: timeout} }

// Annotate names the caller of the next collective.
func (e *End) Annotate(c collective.Caller) { e.caller = c }

// Observe has met called in each collective when all ranks have come.
func (e *End) Observe(met func()) { e.met = met }

// SetTimeout changes the deadline of this rank's next collectives.
func (e *End) SetTimeout(d time.Duration) { e.Timeout = d }

// Meet is called by the backend when all ranks have come.
func (e *End) Meet() {
	if e.met != nil {
		e.met()
	}
}

// Restart counts collectives from the beginning.
func (e *End) Restart() { e.sequence = 0 }

// AllToAll sends each rank its rows, and receives from each.
func (e *End) AllToAll(ctx context.Context, out, in, receive, send device.Tensor) error {
	return e.run(ctx, Call{Kind: collective.KindAllToAll, Out: out, In: in, Receive: receive, Send: send})
}

// AllReduce sums in place.
func (e *End) AllReduce(ctx context.Context, t device.Tensor) error {
	return e.run(ctx, Call{Kind: collective.KindAllReduce, Out: t, In: t})
}

// AllGather brings every rank's tensor to its place.
func (e *End) AllGather(ctx context.Context, out, in device.Tensor) error {
	return e.run(ctx, Call{Kind: collective.KindAllGather, Out: out, In: in})
}

// ReduceScatter sums this rank's part over all ranks.
func (e *End) ReduceScatter(ctx context.Context, out, in device.Tensor) error {
	return e.run(ctx, Call{Kind: collective.KindReduceScatter, Out: out, In: in})
}

// Broadcast brings root's tensor to all others.
func (e *End) Broadcast(ctx context.Context, t device.Tensor, root int) error {
	return e.run(ctx, Call{Kind: collective.KindBroadcast, Out: t, In: t, Root: root})
}

// Barrier only meets.
func (e *End) Barrier(ctx context.Context) error {
	return e.run(ctx, Call{Kind: collective.KindBarrier})
}

// run has the backend do a call that is right by itself, and ends the group because of
// one that is not.
func (e *End) run(ctx context.Context, described Call) error {
	c := &e.Call
	*c = described
	c.Caller, e.caller = e.caller, collective.Caller{}
	e.sequence++
	c.Sequence = e.sequence
	err := c.Check(e.backend.Size())
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("collective: %v on rank %d of %d: %w", c, e.backend.Rank(), e.backend.Size(), err)
		e.backend.Abort(err)
		return err
	}
	deadline := e.startTimer()
	defer e.stopTimer()
	return e.backend.Run(ctx, c, deadline)
}

func (e *End) startTimer() <-chan time.Time {
	switch {
	case e.Timeout <= 0:
		return nil
	case e.timer == nil:
		e.timer = time.NewTimer(e.Timeout)
	default:
		e.timer.Reset(e.Timeout)
	}
	return e.timer.C
}

func (e *End) stopTimer() {
	if e.timer != nil {
		e.timer.Stop()
	}
}
