package cpu

import (
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/device"
)

// Recording does not change who gets which iteration how often, also when queues come at
// once, and a worker is never busy twice at a time.
func TestRecording(t *testing.T) {
	for _, workers := range []int{1, 3} {
		p := newPool(workers)
		a := device.NewActivity(workers, 10_000)
		a.Restart(time.Now())
		labels := []*int{new(int), new(int), new(int)}
		var callers sync.WaitGroup
		for _, label := range labels {
			callers.Go(func() {
				for n := range 30 {
					task := newCountTask(n, workers)
					p.runRecorded(n, task, a, label)
					task.check(t)
				}
			})
		}
		callers.Wait()
		p.close()
		stretches := 0
		for w := range workers {
			list, lost := a.Busy(w)
			stretches += len(list)
			if lost > 0 {
				t.Errorf("%d stretches of worker %d are lost", lost, w)
			}
			for i, b := range list {
				known := false
				for _, l := range labels {
					known = known || b.Label == any(l)
				}
				if !known || b.End < b.Begin || i > 0 && (b.Begin < list[i-1].End || b.Loop <= list[i-1].Loop) {
					t.Fatalf("worker %d: %+v after %+v", w, b, list[max(i-1, 0)])
				}
			}
		}
		if stretches == 0 {
			t.Error("nothing was recorded")
		}
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	d, err := New(Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b, err := d.Alloc(0, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	q := newQueue(d)
	defer q.Close()
	x := device.NewTensor(b, 0, device.Float32, 1<<20)
	a := device.NewActivity(2, 1000)
	a.Restart(time.Now())
	d.Record(a)
	label := new(int)
	if n := testing.AllocsPerRun(20, func() {
		q.Label(label)
		q.Fill(x, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	d.Record(nil)
	before, _ := a.Busy(0)
	n := len(before)
	q.Fill(x, 2)
	if after, _ := a.Busy(0); n == 0 || len(after) != n || after[n-1].Label != any(label) {
		t.Errorf("%d stretches, %d after recording had ended", n, len(after))
	}
}
