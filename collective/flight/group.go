package flight

import (
	"context"
	"fmt"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
	"github.com/lethe-go/lethe/device"
)

// group records what it passes on.
type group struct {
	collective.Group
	recorder  *Recorder
	ranks     []int // in the job
	annotated collective.Annotated

	// The caller's.
	sequence int
	caller   collective.Caller // of the next call
	call     call.Call         // the last one

	// The Recorder's.
	timeout time.Duration // of each call
	now     entry
	busy    bool // now has not ended
	taken   measure
}

// renewable is a group that can be renewed.
type renewable struct {
	*group
	renewer collective.Renewer
}

// Renew begins to count anew, as the ranks do.
func (g *renewable) Renew() {
	g.recorder.renewed(g.group)
	g.renewer.Renew()
}

// Error is why a collective has failed on this rank.
type Error struct {
	// Rank in the job; GroupRank in the group of that name, whose members have the Ranks
	// of the job in the order in which Err counts them.
	Rank      int
	Group     string
	GroupRank int
	Ranks     []int
	// Kind, Sequence (from 1 in each group) and Node of the collective; Node is "" for a call
	// that comes from no graph.
	Kind     collective.Kind
	Sequence int
	Node     string
	// Record is the file that tells more, "" if there is none.
	Record string
	// Err is the backend's.
	Err error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("collective: rank %d (number %d of ranks %v, group %s): %s: %v", e.Rank, e.GroupRank, e.Ranks, e.Group,
		call.Name(e.Kind, e.Sequence, e.Node), e.Err)
	if e.Record != "" {
		text += "; see " + e.Record
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Annotate names the caller of the next collective.
func (g *group) Annotate(c collective.Caller) {
	g.caller = c
	if g.annotated != nil {
		g.annotated.Annotate(c)
	}
}

// SetTimeout changes the deadline of the next collectives; 0 is for ever. The watchdog
// sees to it if the backend cannot.
func (g *group) SetTimeout(d time.Duration) {
	if t, ok := g.Group.(collective.Timed); ok {
		t.SetTimeout(d)
	}
	r := g.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	g.timeout = d
	if d > 0 {
		r.dog.start(r)
	}
}

// Abort ends the group. The record tells why: it is written first, for the launcher may
// end this process as soon as another has failed.
func (g *group) Abort(cause error) {
	// A record that cannot be written must not hide the cause, which the caller has.
	_ = g.recorder.fail(cause)
	g.Group.Abort(cause)
}

// begin records g.call.
func (g *group) begin(c call.Call) {
	g.call = c
	g.sequence++
	e := entry{group: g, kind: c.Kind, sequence: g.sequence, caller: g.caller}
	g.caller = collective.Caller{}
	if g.call.Check(g.Size()) == nil {
		e.sent, e.received = g.call.Traffic(g.Rank(), g.Size())
	}
	g.call = call.Call{Kind: c.Kind} // keeps no tensor
	g.recorder.begin(g, e)
}

// end records how the call has ended.
func (g *group) end(err error) error {
	g.recorder.end(g, err == nil)
	if err == nil {
		return nil
	}
	return g.explain(err)
}

// explain writes the record, and says where it is.
func (g *group) explain(err error) error {
	e := g.error(err)
	if failure := g.recorder.fail(e); failure != nil {
		e.Err, e.Record = fmt.Errorf("%w; %w", err, failure), ""
	}
	return e
}

// error names the present call, or the last one.
func (g *group) error(err error) *Error {
	return &Error{Rank: g.recorder.Rank, Group: g.Name(), GroupRank: g.Rank(), Ranks: g.ranks,
		Kind: g.now.kind, Sequence: g.now.sequence, Node: g.now.caller.Node, Record: g.recorder.Path(), Err: err}
}

func (g *group) AllToAll(ctx context.Context, out, in, receive, send device.Tensor) error {
	g.begin(call.Call{Kind: collective.KindAllToAll, Out: out, In: in, Receive: receive, Send: send})
	return g.end(g.Group.AllToAll(ctx, out, in, receive, send))
}

func (g *group) AllReduce(ctx context.Context, t device.Tensor) error {
	g.begin(call.Call{Kind: collective.KindAllReduce, Out: t, In: t})
	return g.end(g.Group.AllReduce(ctx, t))
}

func (g *group) AllGather(ctx context.Context, out, in device.Tensor) error {
	g.begin(call.Call{Kind: collective.KindAllGather, Out: out, In: in})
	return g.end(g.Group.AllGather(ctx, out, in))
}

func (g *group) ReduceScatter(ctx context.Context, out, in device.Tensor) error {
	g.begin(call.Call{Kind: collective.KindReduceScatter, Out: out, In: in})
	return g.end(g.Group.ReduceScatter(ctx, out, in))
}

func (g *group) Broadcast(ctx context.Context, t device.Tensor, root int) error {
	g.begin(call.Call{Kind: collective.KindBroadcast, Out: t, In: t, Root: root})
	return g.end(g.Group.Broadcast(ctx, t, root))
}

func (g *group) Barrier(ctx context.Context) error {
	g.begin(call.Call{Kind: collective.KindBarrier})
	return g.end(g.Group.Barrier(ctx))
}
