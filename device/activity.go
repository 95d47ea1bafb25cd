package device

import "time"

// Recorder is a Device that can tell when its workers were busy.
type Recorder interface {
	Device

	// Record begins to record in a; nil ends it. Call it while no kernel runs.
	// Recording changes no result and allocates nothing.
	Record(a *Activity)
}

// Labeler is a Queue whose kernels can be told apart in an [Activity].
type Labeler interface {
	// Label says what the kernels enqueued from now on belong to. It must be a pointer
	// or nil, which costs no memory.
	Label(label any)
}

// Activity is when each worker of a device was busy. It is made before it is filled.
type Activity struct {
	start   time.Time
	workers []workerActivity
}

// Busy is a stretch of time in which a worker took part in a kernel.
type Busy struct {
	// Begin and End are counted from the start of the Activity.
	Begin, End time.Duration
	// Label of the queue.
	Label any
	// Loop numbers the parallel loops of the device.
	Loop uint64
}

type workerActivity struct {
	busy []Busy
	lost int
	_    [64]byte // workers write at the same time
}

// NewActivity makes an Activity with room for a number of stretches for each worker.
func NewActivity(workers, room int) *Activity {
	a := &Activity{workers: make([]workerActivity, workers)}
	for w := range a.workers {
		a.workers[w].busy = make([]Busy, 0, room)
	}
	return a
}

// Restart forgets what was recorded and counts time from start on.
func (a *Activity) Restart(start time.Time) {
	a.start = start
	for w := range a.workers {
		a.workers[w].busy, a.workers[w].lost = a.workers[w].busy[:0], 0
	}
}

// Now is the time of the Activity.
func (a *Activity) Now() time.Duration { return time.Since(a.start) }

// Add notes that a worker was busy. What comes without a break of the same loop is one
// stretch; what there is no room for is counted. Each worker calls it for itself.
func (a *Activity) Add(worker int, b Busy) {
	w := &a.workers[worker]
	if n := len(w.busy); n > 0 && w.busy[n-1].Loop == b.Loop {
		w.busy[n-1].End = b.End
		return
	}
	if len(w.busy) == cap(w.busy) {
		w.lost++
		return
	}
	w.busy = append(w.busy, b)
}

// Workers is the number of workers.
func (a *Activity) Workers() int { return len(a.workers) }

// Busy returns the stretches of a worker in order, valid until Restart, and how many
// more there was no room for.
func (a *Activity) Busy(worker int) (list []Busy, lost int) {
	return a.workers[worker].busy, a.workers[worker].lost
}
