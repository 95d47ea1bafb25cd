package device

// Spill is where values wait, outside the device's memory, between two uses: host memory
// that is pinned for the device, or a file. It holds the values of one run of one Program at
// a time, at offsets that the Program chose. It is used by one goroutine at a time.
type Spill interface {
	// Name says where values go, such as "host memory".
	Name() string

	// Reserve makes room for a number of bytes, at least as many as in earlier calls. What
	// was there may be lost. It is called before a run, never in one.
	Reserve(bytes int64) error

	// Offload copies t, which is contiguous, to an offset. When it has returned, and q has
	// done what it was given, t's memory may be overwritten: what remains to be done is the
	// Spill's affair, and what fails then is told by a later call, Reload of the value at the
	// latest.
	Offload(q Queue, offset int64, t Tensor) error

	// Reload copies what was offloaded from an offset to t, which has the dtype and shape of
	// then. It returns an error, and never other bytes, if they cannot be had. Reloads follow
	// all offloads of a run.
	Reload(q Queue, t Tensor, offset int64) error

	// Close gives up the room.
	Close() error
}

// SpillAlignment in bytes of every offset in a [Spill]: what direct access to a disk asks for.
const SpillAlignment = 4096

// SpillError says which value a [Spill] could not keep or give back.
type SpillError struct {
	// Offset is a place within the value's.
	Offset int64
	Err    error
}

func (e *SpillError) Error() string { return e.Err.Error() }

func (e *SpillError) Unwrap() error { return e.Err }
