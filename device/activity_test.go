package device

import (
	"testing"
	"time"
)

func TestActivity(t *testing.T) {
	a := NewActivity(2, 2)
	for round := range 2 {
		a.Restart(time.Now())
		for i, loop := range []uint64{1, 1, 2, 3, 4} {
			at := time.Duration(i)
			a.Add(1, Busy{Begin: at, End: at + 1, Loop: loop})
		}
		list, lost := a.Busy(1)
		if len(list) != 2 || lost != 2 || list[0].Begin != 0 || list[0].End != 2 || list[1].Begin != 2 || list[1].End != 3 {
			t.Errorf("round %d: %v, %d lost; want one stretch for the first loop, room for two, two lost", round, list, lost)
		}
		if list, lost := a.Busy(0); len(list) != 0 || lost != 0 {
			t.Errorf("worker 0 has %v, %d lost", list, lost)
		}
	}
}
