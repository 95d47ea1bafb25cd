package flight

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lethe-go/lethe/collective"
)

// Options of a Recorder; the zero value is a rank alone that writes nothing.
type Options struct {
	// Rank in the job, and the number of Ranks of it.
	Rank, Ranks int
	// Folder of the records, made when the first is written; "" writes none.
	Folder string
	// Entries is how many of the last collectives are kept; 0 means 1024.
	Entries int
	// Grace is what a call may take beyond its deadline until the watchdog aborts the
	// group, and again until it calls Stuck; 0 means ten seconds.
	Grace time.Duration
	// Stuck is called, once, if a call does not even return when its group was aborted: its
	// backend hangs, and only the end of the process helps. nil leaves it at the record.
	Stuck func(error)
}

// Recorder keeps the last collectives of one rank. Its methods may be called by several
// goroutines. Recording allocates nothing.
type Recorder struct {
	Options

	mu     sync.Mutex
	groups []*group
	ring   []entry // the last ended ones, of all groups
	ended  int     // collectives so far: the next one's place is ended modulo len(ring)
	counts Counts
	failed bool // a record of a failure is written, or being written
	dog    watchdog

	writing sync.Mutex // of the file
}

// entry is one collective.
type entry struct {
	group               *group
	kind                collective.Kind
	state               state
	sequence            int
	caller              collective.Caller
	sent, received      int64
	begun, met, finally time.Time // met is zero while ranks are missing
}

// state of a collective.
type state uint8

const (
	waiting state = iota // for ranks that have not come
	moving               // data
	done
	failed
)

func (s state) String() string { return [...]string{"waiting", "moving", "done", "failed"}[s] }

// New returns a Recorder without groups.
func New(o Options) *Recorder {
	if o.Entries <= 0 {
		o.Entries = 1024
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	return &Recorder{Options: o, ring: make([]entry, o.Entries)}
}

// Path of the record.
func (r *Recorder) Path() string {
	if r.Folder == "" {
		return ""
	}
	return filepath.Join(r.Folder, fmt.Sprintf("rank_%d.json", r.Rank))
}

// Group returns g, recorded. ranks are its members' ranks in the job, in g's order.
func (r *Recorder) Group(g collective.Group, ranks []int) collective.Group {
	recorded := &group{Group: g, recorder: r, ranks: slices.Clone(ranks)}
	recorded.annotated, _ = g.(collective.Annotated)
	if o, ok := g.(collective.Observed); ok {
		o.Observe(recorded.meets)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups = append(r.groups, recorded)
	if renewer, ok := g.(collective.Renewer); ok {
		return &renewable{recorded, renewer}
	}
	return recorded
}

// SetTimeout changes the deadline of the next collectives of all groups that there are; 0
// is for ever. It is called while this rank is in no call.
func (r *Recorder) SetTimeout(d time.Duration) {
	r.mu.Lock()
	groups := slices.Clone(r.groups)
	r.mu.Unlock()
	for _, g := range groups {
		g.SetTimeout(d)
	}
}

// begin notes that a call of g has begun.
func (r *Recorder) begin(g *group, e entry) {
	e.begun = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	g.now, g.busy, g.taken = e, true, none
}

// meets notes that all ranks have come.
func (g *group) meets() {
	now := time.Now()
	g.recorder.mu.Lock()
	defer g.recorder.mu.Unlock()
	if g.busy && g.now.state == waiting {
		g.now.state, g.now.met = moving, now
	}
}

// end notes that the call of g is over, and counts it if it was a success.
func (r *Recorder) end(g *group, success bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &g.now
	e.state, e.finally = failed, now
	if success {
		e.state = done
		r.counts.add(e)
	}
	g.busy = false
	r.ring[r.ended%len(r.ring)] = *e
	r.ended++
}

// renewed notes that a group begins anew.
func (r *Recorder) renewed(g *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.sequence, r.failed = 0, false
}

// fail writes the record of the first failure. It returns what is wrong with the file.
func (r *Recorder) fail(cause error) error {
	r.mu.Lock()
	first := !r.failed
	r.failed = true
	r.mu.Unlock()
	if !first {
		return nil
	}
	return r.Write(cause)
}
