package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// float is the type of an element that kernels compute with.
type float interface{ float32 | float64 }

// queue implements device.Queue: every kernel has finished when its method
// returns. The argument blocks of kernels live here, one set per element type,
// so that a warm kernel allocates nothing.
type queue struct {
	dev   *Device
	err   error // first error since Sync
	label any   // of what is recorded
	f32   tasks[float32]
	f64   tasks[float64]
	bytes byteTasks

	scratch  []*buffer // one per worker, grown by reserve
	partials *buffer   // of sums, grown by reservePartials
}

// tasks holds the argument block of every kernel for one element type.
type tasks[T float] struct {
	gemmTasks[T]
	attentionTasks[T]
	vectorTasks[T]
	routingTasks[T]
}

func newQueue(d *Device) *queue {
	return &queue{dev: d, scratch: make([]*buffer, d.pool.workers)}
}

// Sync returns the first error since the last call.
func (q *queue) Sync() error {
	err := q.err
	q.err = nil
	return err
}

// Close frees the scratch memory.
func (q *queue) Close() error {
	for i, b := range q.scratch {
		if b != nil {
			b.Free()
			q.scratch[i] = nil
		}
	}
	if q.partials != nil {
		q.partials.Free()
		q.partials = nil
	}
	return nil
}

// fail keeps the first error.
func (q *queue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// run is the parallel loop of a kernel.
func (q *queue) run(n int, t task) {
	if a := q.dev.pool.recording.activity.Load(); a != nil {
		q.dev.pool.runRecorded(n, t, a, q.label)
		return
	}
	q.dev.pool.run(n, t)
}

// reserve makes sure that every worker has bytes of scratch. Kernels call it
// before they start tasks that use worker scratch.
func (q *queue) reserve(bytes int64) {
	for i := range q.scratch {
		grow(&q.scratch[i], bytes)
	}
}

// reservePartials returns n numbers that the tasks of one kernel share.
func (q *queue) reservePartials(n int) []float64 {
	if n == 0 {
		return nil
	}
	grow(&q.partials, int64(n)*8)
	return slice[float64](q.partials.base, 0, n)
}

func grow(b **buffer, bytes int64) {
	if *b != nil && (*b).size >= bytes {
		return
	}
	if *b != nil {
		(*b).Free()
	}
	var err error
	if *b, err = allocate(bytes); err != nil {
		panic("cpu: out of memory for kernel scratch")
	}
}

// workspace is the scratch of one worker as elements of T.
func workspace[T float](q *queue, worker int) []T {
	b := q.scratch[worker]
	return unsafe.Slice((*T)(b.base), int(b.size)/int(unsafe.Sizeof(*new(T))))
}

// elements returns all elements of a contiguous tensor.
func elements[T device.Number](t device.Tensor) []T { return device.Elements[T](t) }
