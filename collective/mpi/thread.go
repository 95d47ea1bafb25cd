//go:build mpi

package mpi

import (
	"runtime"
	"sync/atomic"
	"time"
)

// thread makes all MPI calls of the process. Its fields are its own, except commands,
// closed and ended.
type thread struct {
	rank, size int
	library    string
	tags       int // largest tag

	peers   []process // all of the world
	data    communicator
	control control
	groups  map[uint64]*group // nil once closed
	active  []*group          // those to poll
	index   uint32            // the least that no group of this process has

	commands chan command
	closed   atomic.Bool
	ended    chan struct{} // closed with err set
	err      error
}

// command is what the process asks of its thread.
type command struct {
	kind     commandKind
	group    *group
	err      error
	function func()
}

type commandKind uint8

const (
	openGroup    commandKind = iota
	startCall                // exchange headers, then data
	continueCall             // exchange data, of a call that has met
	leaveCall                // because of err: a context or the deadline
	abortGroup               // because of err
	renewGroup
	closeGroup
	doFunction
	closeWorld
)

func newThread() *thread {
	return &thread{groups: map[uint64]*group{}, commands: make(chan command, 64), ended: make(chan struct{})}
}

// submit hands a command to the thread.
func (t *thread) submit(c command) error {
	if t.closed.Load() {
		return ErrClosed
	}
	select {
	case t.commands <- c:
		return nil
	case <-t.ended:
		return ErrClosed
	}
}

func (t *thread) run(ready chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	knowledge.Lock()
	defer knowledge.Unlock()
	err := t.start()
	ready <- err
	if err != nil {
		return
	}
	t.loop()
	t.err = t.finish()
	close(t.ended)
}

func (t *thread) start() (err error) {
	if t.rank, t.size, t.tags, err = start(); err != nil {
		return err
	}
	t.library = library()
	if t.peers, err = processes(t.size); err != nil {
		return err
	}
	if t.data, err = duplicate(); err != nil {
		return err
	}
	return t.control.start(t)
}

// finish ends MPI: what is still under way first, then the communicators in the reverse
// order of their making.
func (t *thread) finish() error {
	for _, g := range t.groups {
		if g != nil {
			g.release(t)
		}
	}
	if err := t.control.finish(); err != nil {
		return err
	}
	if err := t.data.free(); err != nil {
		return err
	}
	return finalize()
}

// The thread polls as long as there is progress, and for eagerPolls more. Then it rests,
// each time twice as long, up to a limit: processes may be more than processors.
const (
	eagerPolls = 40
	firstRest  = 10 * time.Microsecond
	busyRest   = 200 * time.Microsecond // while a collective is under way
	idleRest   = 5 * time.Millisecond   // while only an abort can come
	lookAfter  = 500 * time.Millisecond // between looks whether the awaited are alive
)

func (t *thread) loop() {
	timer := time.NewTimer(time.Hour)
	idle, rest := 0, firstRest
	var looked time.Time
	for {
		progress, open := t.takeCommands()
		if !open {
			return
		}
		more, busy := t.poll()
		if progress || more {
			idle, rest = 0, firstRest
			continue
		}
		if idle++; idle < eagerPolls && busy {
			runtime.Gosched()
			continue
		}
		limit := busyRest
		if !busy {
			limit = idleRest
		}
		timer.Reset(rest)
		c, came := t.rest(timer.C)
		switch {
		case came && !t.obey(c):
			return
		case came:
			idle, rest = 0, firstRest
		default:
			rest = min(2*rest, limit)
			if busy && time.Since(looked) > lookAfter {
				looked = time.Now()
				t.mourn()
			}
		}
	}
}

// rest waits for a command, until over.
func (t *thread) rest(over <-chan time.Time) (c command, came bool) {
	knowledge.Unlock()
	defer knowledge.Lock()
	select {
	case c := <-t.commands:
		return c, true
	case <-over:
		return command{}, false
	}
}

func (t *thread) takeCommands() (progress, open bool) {
	for {
		select {
		case c := <-t.commands:
			if !t.obey(c) {
				return true, false
			}
			progress = true
		default:
			return progress, true
		}
	}
}

// obey reports whether the thread goes on.
func (t *thread) obey(c command) bool {
	g := c.group
	switch c.kind {
	case openGroup:
		t.open(g)
	case startCall:
		g.start(t)
	case continueCall:
		g.continues(t)
	case leaveCall:
		g.leave(t, c.err)
	case abortGroup:
		g.fail(t, c.err)
	case renewGroup:
		g.renew(t)
	case closeGroup:
		g.waits = true
		g.release(t)
		t.groups[g.id] = nil
	case doFunction:
		knowledge.Unlock()
		c.function()
		knowledge.Lock()
	case closeWorld:
		t.closed.Store(true)
		return false
	}
	return true
}

// poll makes progress on all messages. It is busy if someone waits for one.
func (t *thread) poll() (progress, busy bool) {
	progress, busy = t.control.poll(t)
	kept := t.active[:0]
	for _, g := range t.active {
		p, b := g.poll(t)
		progress, busy = progress || p, busy || b
		if g.over() {
			g.active = false
			continue
		}
		kept = append(kept, g)
	}
	t.active = kept
	return progress, busy
}

// activate has a group polled.
func (t *thread) activate(g *group) {
	if !g.active {
		g.active = true
		t.active = append(t.active, g)
	}
}
