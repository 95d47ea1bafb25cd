// Package local is a collective.Group whose ranks are goroutines of one process.
// Ranks read each other's memory, so a transfer is one copy.
package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// Options of a group; the zero value works.
type Options struct {
	// Name of the group; "" is "local".
	Name string
	// Timeout of each collective; 0 means none.
	Timeout time.Duration
}

// New returns the ends of a group of size ranks. Tensors must be reachable by the
// host.
func New(size int, o Options) ([]collective.Group, error) {
	if size < 1 {
		return nil, fmt.Errorf("collective: a group of %d ranks: want 1 or more", size)
	}
	if o.Name == "" {
		o.Name = "local"
	}
	m := &meeting{name: o.Name, timeout: o.Timeout, posts: make([]post, size), stop: make(chan struct{})}
	m.idle.L = &m.mu
	groups := make([]collective.Group, size)
	for r := range groups {
		m.wake = append(m.wake, make(chan struct{}, 1))
		groups[r] = &group{meeting: m, rank: r}
	}
	return groups, nil
}

// group is one rank's end.
type group struct {
	*meeting
	rank     int
	sequence int // collectives begun by this rank
	timer    *time.Timer
}

func (g *group) Name() string { return g.name }
func (g *group) Rank() int    { return g.rank }
func (g *group) Size() int    { return len(g.posts) }

// meeting is where the ranks meet. Every collective has the same course: each rank
// posts what it brings, all wait for the last to arrive, each does its part reading
// the others' posts, and all wait again until everyone is done. A rank that gives up
// leaves only when nobody works: until then others may read its tensors.
type meeting struct {
	name    string
	timeout time.Duration

	mu      sync.Mutex
	posts   []post
	arrived int
	working int             // ranks that have met and not yet done their part
	idle    sync.Cond       // working has become 0
	wake    []chan struct{} // by rank: one token for each time all have met
	stop    chan struct{}   // closed when the group is aborted
	cause   error           // wraps ErrAborted
}

// kind of a collective.
type kind string

const (
	allToAll      kind = "all_to_all"
	allReduce     kind = "all_reduce"
	allGather     kind = "all_gather"
	reduceScatter kind = "reduce_scatter"
	broadcast     kind = "broadcast"
	barrier       kind = "barrier"
)

// post is what a rank brings to a collective.
type post struct {
	kind          kind
	sequence      int
	out, in       device.Tensor
	send, receive device.Tensor // rows by rank, see split
	root          int
}

// exchange runs one collective.
func (g *group) exchange(ctx context.Context, p post) error {
	if ctx.Err() != nil {
		return g.refuse(p.kind, "%w", context.Cause(ctx))
	}
	g.sequence++
	p.sequence = g.sequence
	deadline := g.startTimer()
	defer g.stopTimer()
	g.mu.Lock()
	g.posts[g.rank] = p
	g.mu.Unlock()
	phases := 1
	if p.kind == allReduce {
		phases = 2 // sum a part, then copy the other parts
	}
	for phase := range phases {
		if err := g.meet(ctx, deadline, true); err != nil {
			return err
		}
		if err := g.work(&p, phase); err != nil {
			return err
		}
	}
	return g.meet(ctx, deadline, false)
}

// work does this rank's part of a collective.
func (g *group) work(p *post, phase int) error {
	err := g.do(p, phase)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.working--
	if g.working == 0 {
		g.idle.Broadcast()
	}
	if err != nil {
		g.fail(fmt.Errorf("rank %d: %w", g.rank, err))
		g.rest()
	}
	return err
}

func (g *group) do(p *post, phase int) error {
	if phase == 0 {
		if err := g.agree(p); err != nil {
			return err
		}
	}
	switch p.kind {
	case allToAll:
		g.fetchRows(p)
	case allReduce:
		return g.reduce(p, phase)
	case allGather:
		for r := range g.posts {
			copyElements(p.out, r*p.in.Len(), g.posts[r].in, 0, p.in.Len())
		}
	case reduceScatter:
		return g.sumInto(p.out, 0, g.rank*p.out.Len(), (g.rank+1)*p.out.Len())
	case broadcast:
		if g.rank != p.root {
			copyElements(p.out, 0, g.posts[p.root].in, 0, p.out.Len())
		}
	}
	return nil
}

// meet waits until all ranks have arrived, to work or to part. The last one wakes
// the others.
func (g *group) meet(ctx context.Context, deadline <-chan time.Time, work bool) error {
	g.mu.Lock()
	if g.cause != nil {
		defer g.mu.Unlock()
		return g.aborted()
	}
	g.arrived++
	if g.arrived == len(g.posts) {
		g.arrived = 0
		if work {
			g.working = len(g.posts)
		}
		for r, w := range g.wake {
			if r != g.rank {
				w <- struct{}{}
			}
		}
		g.mu.Unlock()
		return nil
	}
	g.mu.Unlock()
	late := false
	select {
	case <-g.wake[g.rank]:
		return nil
	case <-g.stop:
	case <-ctx.Done():
	case <-deadline:
		late = true
	}
	return g.leave(ctx, late)
}

// leave gives up waiting, unless all ranks have met just now: then each must do its
// part.
func (g *group) leave(ctx context.Context, late bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	select {
	case <-g.wake[g.rank]:
		return nil
	default:
	}
	switch {
	case g.cause != nil:
		return g.aborted()
	case late:
		p := &g.posts[g.rank]
		err = fmt.Errorf("%w: %s number %d waited %v for ranks %v", collective.ErrTimeout, p.kind, p.sequence, g.timeout, g.missing(p.sequence))
	default:
		err = context.Cause(ctx)
	}
	g.fail(fmt.Errorf("rank %d: %w", g.rank, err))
	g.rest()
	return err
}

// aborted is the error of every call once a rank has failed. The caller holds mu.
func (m *meeting) aborted() error {
	m.rest()
	return m.cause
}

// rest waits until no rank reads another's tensors. The caller holds mu.
func (m *meeting) rest() {
	for m.working > 0 {
		m.idle.Wait()
	}
}

// missing lists the ranks that have not begun collective number n. The caller holds mu.
func (m *meeting) missing(n int) []int {
	var ranks []int
	for r := range m.posts {
		if m.posts[r].sequence < n {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Abort ends the group. The first cause is kept.
func (g *group) Abort(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail(cause)
}

// fail ends the group. The caller holds mu.
func (m *meeting) fail(cause error) {
	if m.cause == nil {
		m.cause = fmt.Errorf("%w: %w", collective.ErrAborted, cause)
		close(m.stop)
	}
}

func (g *group) startTimer() <-chan time.Time {
	switch {
	case g.timeout <= 0:
		return nil
	case g.timer == nil:
		g.timer = time.NewTimer(g.timeout)
	default:
		g.timer.Reset(g.timeout)
	}
	return g.timer.C
}

func (g *group) stopTimer() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// agree compares this rank's post with all others.
func (g *group) agree(mine *post) error {
	for r := range g.posts {
		other := &g.posts[r]
		if mine.kind != other.kind || mine.sequence != other.sequence || mine.in.DType() != other.in.DType() || mine.root != other.root {
			return fmt.Errorf("%w: number %d is %s of %v (root %d) on rank %d, number %d is %s of %v (root %d) on rank %d", collective.ErrMismatch,
				mine.sequence, mine.kind, mine.in, mine.root, g.rank, other.sequence, other.kind, other.in, other.root, r)
		}
		if err := g.agreeOnShape(mine, other, r); err != nil {
			return fmt.Errorf("%w: %s number %d: %w", collective.ErrMismatch, mine.kind, mine.sequence, err)
		}
	}
	return nil
}

func (g *group) agreeOnShape(mine, other *post, r int) error {
	switch {
	case mine.kind == allToAll && !sameRows(mine.in, other.in):
		return fmt.Errorf("rows of %v on rank %d and of %v on rank %d", mine.in, g.rank, other.in, r)
	case mine.kind == allToAll && g.split(mine.receive, mine.out, r) != g.split(other.send, other.in, g.rank):
		return fmt.Errorf("rank %d sends %d rows to rank %d, which expects %d", r, g.split(other.send, other.in, g.rank), g.rank, g.split(mine.receive, mine.out, r))
	case mine.kind != allToAll && (!sameRows(mine.in, other.in) || mine.in.Len() != other.in.Len()):
		return fmt.Errorf("%v on rank %d and %v on rank %d", mine.in, g.rank, other.in, r)
	}
	return nil
}

// sameRows reports whether two tensors have the same extents behind the first.
func sameRows(a, b device.Tensor) bool {
	if a.DType() != b.DType() || a.Rank() != b.Rank() {
		return false
	}
	for i := 1; i < a.Rank(); i++ {
		if a.Dim(i) != b.Dim(i) {
			return false
		}
	}
	return true
}

// refuse ends the group because of a call that is wrong by itself.
func (g *group) refuse(k kind, format string, args ...any) error {
	err := fmt.Errorf("collective: %s on rank %d of %d: "+format, append([]any{k, g.rank, g.Size()}, args...)...)
	g.Abort(err)
	return err
}

// AllToAll copies this rank's rows out of every other rank's tensor.
func (g *group) AllToAll(ctx context.Context, out, in, receive, send device.Tensor) error {
	if !usable(out, in) || in.Rank() < 1 || !sameRows(in, out) || !g.splits(send, in) || !g.splits(receive, out) {
		return g.refuse(allToAll, "send %v in parts %v and receive %v in parts %v", in, g.parts(send, in), out, g.parts(receive, out))
	}
	return g.exchange(ctx, post{kind: allToAll, out: out, in: in, send: send, receive: receive})
}

// usable reports whether data can be copied from in to out as it lies in memory.
func usable(out, in device.Tensor) bool {
	return !out.IsZero() && !in.IsZero() && out.DType() == in.DType() && out.Contiguous() && in.Contiguous()
}

// AllReduce sums in place.
func (g *group) AllReduce(ctx context.Context, t device.Tensor) error {
	if !usable(t, t) {
		return g.refuse(allReduce, "%v is not contiguous", t)
	}
	return g.exchange(ctx, post{kind: allReduce, out: t, in: t})
}

// AllGather copies every rank's tensor to its place.
func (g *group) AllGather(ctx context.Context, out, in device.Tensor) error {
	if !usable(out, in) || out.Len() != in.Len()*g.Size() {
		return g.refuse(allGather, "%v into %v", in, out)
	}
	return g.exchange(ctx, post{kind: allGather, out: out, in: in})
}

// ReduceScatter sums this rank's part over all ranks.
func (g *group) ReduceScatter(ctx context.Context, out, in device.Tensor) error {
	if !usable(out, in) || in.Len() != out.Len()*g.Size() {
		return g.refuse(reduceScatter, "%v into %v", in, out)
	}
	return g.exchange(ctx, post{kind: reduceScatter, out: out, in: in})
}

// Broadcast copies from root.
func (g *group) Broadcast(ctx context.Context, t device.Tensor, root int) error {
	if !usable(t, t) || root < 0 || root >= g.Size() {
		return g.refuse(broadcast, "%v from root %d", t, root)
	}
	return g.exchange(ctx, post{kind: broadcast, out: t, in: t, root: root})
}

// Barrier only meets.
func (g *group) Barrier(ctx context.Context) error { return g.exchange(ctx, post{kind: barrier}) }
