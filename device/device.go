package device

// Device owns memory and executes kernels.
type Device interface {
	// Name is the kind of device, such as "cpu".
	Name() string

	// Level names the instruction set the kernels were chosen for, such as
	// "avx512", "avx2" or "go". Bits are reproducible within one level.
	Level() string

	// Workers is the number of kernels' parts that can run at once. It never
	// changes a result.
	Workers() int

	// Alloc returns zeroed memory, aligned to [Alignment] bytes. Memory on the
	// host ([OnHost]) is always reachable by Go code.
	Alloc(place Place, bytes int64) (Buffer, error)

	// HostAccessible reports whether Go code may read and write device memory.
	HostAccessible() bool

	// NewQueue returns a queue of kernels. Kernels of one queue run in order;
	// different queues may run at the same time.
	NewQueue() Queue

	// Close stops the device's workers. Buffers stay valid until freed.
	Close() error
}

// Alignment in bytes of every buffer and of every storage inside an arena.
const Alignment = 64

// Align is n, rounded up to a multiple of unit.
func Align(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// Queue is an ordered sequence of kernels on a device. It is used by one
// goroutine at a time. A kernel that meets bad data (an id outside its table)
// does not stop the queue: the first such error is kept for Sync.
type Queue interface {
	Kernels

	// Sync waits for every kernel enqueued so far and returns, and forgets, the
	// first error one of them met.
	Sync() error

	// Close releases the queue.
	Close() error
}
