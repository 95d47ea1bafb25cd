package cpu

import (
	"sync/atomic"

	"github.com/lethe-go/lethe/device"
)

// recording is what the pool needs to record when its workers are busy.
type recording struct {
	activity atomic.Pointer[device.Activity] // nil if nothing is recorded
	task     recordedTask                    // used under pool.mu
	loops    uint64
}

// recordedTask runs the iterations of another task and notes the time they take.
type recordedTask struct {
	task
	activity *device.Activity
	label    any
	loop     uint64
}

func (t *recordedTask) do(worker, i int) {
	begin := t.activity.Now()
	t.task.do(worker, i)
	t.activity.Add(worker, device.Busy{Begin: begin, End: t.activity.Now(), Label: t.label, Loop: t.loop})
}

// Record implements device.Recorder.
func (d *Device) Record(a *device.Activity) { d.pool.recording.activity.Store(a) }

// Label implements device.Labeler.
func (q *queue) Label(label any) { q.label = label }

// runRecorded is run with a record of who did what. What the caller does alone because
// the pool is busy with another queue's task is not the work of a worker.
func (p *pool) runRecorded(n int, t task, a *device.Activity, label any) {
	if n == 0 || !p.mu.TryLock() {
		alone(n, t)
		return
	}
	r := &p.recording
	r.loops++
	r.task = recordedTask{t, a, label, r.loops}
	if n == 1 || p.workers == 1 {
		alone(n, &r.task)
	} else {
		p.share(n, &r.task)
	}
	r.task = recordedTask{}
	p.mu.Unlock()
}
