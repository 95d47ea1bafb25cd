package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// countTask counts how often each iteration runs, and holds on to see that no
// scratch is used by two at once.
type countTask struct {
	counts  []atomic.Int32
	holders []atomic.Int32
	shared  atomic.Bool
	pause   time.Duration
}

func newCountTask(n, workers int) *countTask {
	return &countTask{counts: make([]atomic.Int32, n), holders: make([]atomic.Int32, workers)}
}

func (t *countTask) do(worker, i int) {
	if t.holders[worker].Add(1) != 1 {
		t.shared.Store(true)
	}
	t.counts[i].Add(1)
	time.Sleep(t.pause)
	t.holders[worker].Add(-1)
}

func (t *countTask) check(tb testing.TB) {
	tb.Helper()
	for i := range t.counts {
		if n := t.counts[i].Load(); n != 1 {
			tb.Fatalf("iteration %d ran %d times", i, n)
		}
	}
	if t.shared.Load() {
		tb.Fatal("two iterations ran as the same worker at once")
	}
}

func TestPoolRunsEveryIterationOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 9} {
		p := newPool(workers)
		for n := range 40 {
			for _, pause := range []time.Duration{0, 20 * time.Microsecond} {
				task := newCountTask(n, workers)
				task.pause = pause
				p.run(n, task)
				task.check(t)
			}
		}
		p.close()
	}
}

// meetTask's iterations wait for each other, which takes a worker beside the caller.
type meetTask struct {
	arrived atomic.Int32
	alone   atomic.Bool
}

func (t *meetTask) do(int, int) {
	t.arrived.Add(1)
	for patience := time.Now().Add(10 * time.Second); t.arrived.Load() < 2; runtime.Gosched() {
		if time.Now().After(patience) {
			t.alone.Store(true)
			return
		}
	}
}

// TestPoolWakes leaves time between tasks for workers to rest.
func TestPoolWakes(t *testing.T) {
	p := newPool(2)
	defer p.close()
	for range 20 {
		time.Sleep(time.Millisecond)
		task := new(meetTask)
		p.run(2, task)
		if task.alone.Load() {
			t.Fatal("the worker did not wake")
		}
	}
}

func TestPoolServesManyCallers(t *testing.T) {
	p := newPool(3)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 500 {
				task := newCountTask(7, 3)
				p.run(7, task)
				task.check(t)
			}
		})
	}
	callers.Wait()
	p.close()
}

func TestPoolClose(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 50 {
		p := newPool(4)
		p.run(5, newCountTask(5, 4))
		p.close()
		p.close()
		task := newCountTask(6, 4)
		p.run(6, task)
		task.check(t)
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%d goroutines after close, %d before", runtime.NumGoroutine(), before)
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := newPool(3)
	defer p.close()
	task := newCountTask(16, 3)
	if n := testing.AllocsPerRun(100, func() { p.run(16, task) }); n != 0 {
		t.Fatalf("%v allocations for one task", n)
	}
}

type emptyTask struct{}

func (emptyTask) do(_, _ int) {}

// BenchmarkPool measures what a task costs beyond its work.
func BenchmarkPool(b *testing.B) {
	p := newPool(2)
	defer p.close()
	for b.Loop() {
		p.run(2, emptyTask{})
	}
}
