package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// task is the body of a parallel loop. Iterations are independent, and which
// worker takes which must not matter to the result; worker only picks scratch.
// Kernels keep their tasks inside the queue and pass pointers, so that running
// one allocates nothing.
type task interface {
	do(worker, i int)
}

// pool runs the iterations of tasks on the calling goroutine and workers−1 others.
type pool struct {
	workers int

	mu      sync.Mutex // held by the goroutine whose task is running
	task    task
	n       int64
	next    atomic.Int64
	busy    atomic.Int32  // workers that have not finished the current task
	epoch   atomic.Uint32 // counts tasks
	closed  atomic.Bool
	wake    []chan struct{}
	resting []atomic.Bool
	done    sync.WaitGroup
}

func newPool(workers int) *pool {
	p := &pool{workers: workers, wake: make([]chan struct{}, workers), resting: make([]atomic.Bool, workers)}
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
		for i := range n {
			t.do(0, i)
		}
		return
	}
	p.task, p.n = t, int64(n)
	p.next.Store(0)
	p.busy.Store(int32(p.workers - 1))
	p.epoch.Add(1)
	for w := 1; w < p.workers; w++ {
		if p.resting[w].Load() && p.resting[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
	}
	p.take(0)
	for spins := 0; p.busy.Load() > 0; spins++ {
		if spins > spinLimit {
			runtime.Gosched()
		}
	}
	p.task = nil
	p.mu.Unlock()
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

// spinLimit is how often a waiting goroutine looks before it yields: some tens
// of microseconds, longer than the gap between two kernels of a step.
const spinLimit = 20000

func (p *pool) work(w int) {
	seen := uint32(0)
	for {
		for spins := 0; p.epoch.Load() == seen; spins++ {
			if p.closed.Load() {
				return
			}
			if spins < spinLimit {
				continue
			}
			p.resting[w].Store(true)
			// A task that began before resting was set does not wake this worker.
			if (p.epoch.Load() != seen || p.closed.Load()) && p.resting[w].CompareAndSwap(true, false) {
				continue
			}
			<-p.wake[w]
			spins = 0
		}
		seen = p.epoch.Load()
		p.take(w)
		p.busy.Add(-1)
	}
}

// close stops the workers and waits for them.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Swap(true) {
		return
	}
	for w := 1; w < p.workers; w++ {
		if p.resting[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
	}
	p.done.Wait()
}
