package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// task is the body of a parallel loop. Which worker takes which iteration must not
// matter to the result; worker only picks scratch. Iterations are taken in ascending
// order, so one may wait for what an earlier one does (the gradients of attention do).
// Kernels keep their tasks inside the queue and pass pointers, so that running one
// allocates nothing.
type task interface {
	do(worker, i int)
}

// pool runs the iterations of tasks on the calling goroutine and workers−1 others.
//
// Workers join a task while it is open and are waited for only if they did. So a
// worker that the operating system gives no processor costs its help and nothing
// else, and a task that is over before anyone woke up costs the waking.
type pool struct {
	workers int
	spins   int // looks before a goroutine that waits is parked

	mu      sync.Mutex // held by the goroutine whose task is running
	task    task       // with n: written while no worker is in a task
	n       int64
	_       [64]byte // workers spin on state while others write next
	state   atomic.Uint64
	_       [64]byte
	next    atomic.Int64
	_       [64]byte
	closed  atomic.Bool
	resting []atomic.Bool   // workers that need waking
	wake    []chan struct{} // one wake-up for each resting worker
	left    chan struct{}   // the last worker left a task whose caller is parked
	done    sync.WaitGroup

	recording recording
}

// The parts of pool.state.
const (
	poolWorkers = 1<<30 - 1 // in the task
	poolParked  = 1 << 30   // the caller is, until the last worker leaves
	poolOpen    = 1 << 31   // workers may join
	poolTask    = 1 << 32   // one task more
)

func newPool(workers int) *pool {
	p := &pool{workers: workers, resting: make([]atomic.Bool, workers), wake: make([]chan struct{}, workers)}
	p.left = make(chan struct{}, 1)
	// With too few processors a spinning worker would keep another from working.
	if workers <= min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) {
		p.spins = spinLimit
	}
	for w := 1; w < workers; w++ {
		p.wake[w] = make(chan struct{}, 1)
		p.done.Go(func() { p.work(w) })
	}
	return p
}

// run calls t.do for every i in [0, n) and returns when all have finished. When
// the pool is busy with another queue's task, the caller does all of it alone.
func (p *pool) run(n int, t task) {
	if n <= 1 || p.workers == 1 || !p.mu.TryLock() {
		alone(n, t)
		return
	}
	p.share(n, t)
	p.mu.Unlock()
}

// alone runs all iterations on the calling goroutine.
func alone(n int, t task) {
	for i := range n {
		t.do(0, i)
	}
}

// share runs a task together with the workers. The caller holds mu.
func (p *pool) share(n int, t task) {
	p.task, p.n = t, int64(n)
	p.next.Store(0)
	p.state.Add(poolTask | poolOpen)
	p.wakeUp(n - 1)
	p.take(0)
	p.finish()
	p.task = nil
}

// wakeUp wakes resting workers, at most n.
func (p *pool) wakeUp(n int) {
	for w := 1; w < p.workers && n > 0; w++ {
		if p.resting[w].Load() && p.resting[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
		n--
	}
}

// take runs iterations until none is left.
func (p *pool) take(worker int) {
	for {
		i := p.next.Add(1) - 1
		if i >= p.n {
			return
		}
		p.task.do(worker, int(i))
	}
}

// finish closes the task and waits for the workers in it.
func (p *pool) finish() {
	p.state.And(^uint64(poolOpen))
	for range p.spins {
		if p.state.Load()&poolWorkers == 0 {
			return
		}
		spinPause()
	}
	if p.state.Or(poolParked)&poolWorkers != 0 {
		<-p.left
	}
	p.state.And(^uint64(poolParked))
}

// work is the life of a worker.
func (p *pool) work(w int) {
	seen := uint64(0)
	for {
		p.await(w, seen)
		if p.closed.Load() {
			return
		}
		seen = p.state.Load() / poolTask
		if !p.join(seen) {
			continue
		}
		p.take(w)
		if p.state.Add(^uint64(0))&(poolParked|poolWorkers) == poolParked {
			p.left <- struct{}{}
		}
	}
}

// await returns when there is a task after the one seen, or the pool is closed.
func (p *pool) await(w int, seen uint64) {
	news := func() bool { return p.state.Load()/poolTask != seen || p.closed.Load() }
	for {
		for range p.spins {
			if news() {
				return
			}
			spinPause()
		}
		p.resting[w].Store(true)
		// A task that began before resting was set does not wake this worker.
		if news() && p.resting[w].CompareAndSwap(true, false) {
			return
		}
		<-p.wake[w]
		if news() {
			return
		}
	}
}

// join enters the task unless it is over.
func (p *pool) join(task uint64) bool {
	for {
		s := p.state.Load()
		if s/poolTask != task || s&poolOpen == 0 {
			return false
		}
		if p.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// close stops the workers and waits for them. Tasks run on, alone.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Swap(true) {
		return
	}
	p.wakeUp(p.workers)
	p.done.Wait()
}
