// Package local is a collective.Group whose ranks are goroutines of one process.
// Ranks read each other's memory, so a transfer is one copy. For experiments a link of
// some latency and bandwidth can be put between them, see [Link.Transfer].
package local

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
)

// Options of a group; the zero value works.
type Options struct {
	// Name of the group; "" is "local".
	Name string
	// Timeout of each collective; 0 means none.
	Timeout time.Duration
	// Link between the ranks.
	Link Link
}

// New returns the ends of a group of size ranks. Tensors must be reachable by the
// host.
func New(size int, o Options) ([]collective.Group, error) {
	if size < 1 {
		return nil, fmt.Errorf("collective: a group of %d ranks: want 1 or more", size)
	}
	if l := o.Link; l.Latency < 0 || l.Bandwidth < 0 {
		return nil, fmt.Errorf("collective: a link of latency %v and %v bytes/s: want neither negative", l.Latency, l.Bandwidth)
	}
	if o.Name == "" {
		o.Name = "local"
	}
	m := &meeting{Options: o, posts: make([]call.Call, size), stop: make(chan struct{})}
	m.idle.L = &m.mu
	groups := make([]collective.Group, size)
	for r := range groups {
		m.wake = append(m.wake, make(chan struct{}, 1))
		g := &group{meeting: m, rank: r, terms: make([]unsafe.Pointer, size)}
		g.End = call.NewEnd(g, o.Timeout)
		groups[r] = g
	}
	return groups, nil
}

// group is one rank's end.
type group struct {
	*meeting
	call.End
	rank  int
	timer *time.Timer      // of the modelled link
	terms []unsafe.Pointer // of a sum, by rank
}

func (g *group) Name() string { return g.Options.Name }
func (g *group) Rank() int    { return g.rank }
func (g *group) Size() int    { return len(g.posts) }

// meeting is where the ranks meet. Every collective has the same course: each rank
// posts what it brings, all wait for the last to arrive, each does its part reading
// the others' posts, and all wait again until everyone is done. A rank that gives up
// leaves only when nobody works: until then others may read its tensors.
type meeting struct {
	Options

	mu      sync.Mutex
	posts   []call.Call
	arrived int
	working int             // ranks that have met and not yet done their part
	idle    sync.Cond       // working has become 0
	wake    []chan struct{} // by rank: one token for each time all have met
	stop    chan struct{}   // closed when the group is aborted
	cause   error           // wraps ErrAborted
}

// Run does this rank's part of one collective.
func (g *group) Run(ctx context.Context, c *call.Call, deadline <-chan time.Time) error {
	g.mu.Lock()
	g.posts[g.rank] = *c
	g.mu.Unlock()
	if err := g.meet(ctx, deadline, true); err != nil {
		return err
	}
	g.Meet()
	arrival := g.arrival(c)
	if err := g.work(c, g.take); err != nil {
		return err
	}
	if c.Kind == collective.KindAllReduce {
		if err := g.meet(ctx, deadline, true); err != nil {
			return err
		}
		if err := g.work(c, g.shareSums); err != nil {
			return err
		}
	}
	g.await(ctx, arrival)
	return g.meet(ctx, deadline, false)
}

// work does this rank's part of a collective.
func (g *group) work(c *call.Call, do func(*call.Call) error) error {
	err := do(c)
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
		c := &g.posts[g.rank]
		err = fmt.Errorf("%w: %v waited %v for ranks %v", collective.ErrTimeout, c, g.Timeout, g.missing(c.Sequence))
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
		if m.posts[r].Sequence < n {
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
