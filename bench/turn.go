package main

import "time"

// A turn of a kernel goes on for turnTime, in batches of calls of at least batchTime.
const (
	turnTime  = 60 * time.Millisecond
	batchTime = 200 * time.Microsecond
)

// fastest calls f for one turn and returns the seconds of a call in the fastest batch.
func fastest(f func()) float64 {
	batch := 1
	best := seconds(f)
	for start := time.Now(); time.Since(start) < turnTime; {
		took := seconds(func() {
			for range batch {
				f()
			}
		})
		best = min(best, took/float64(batch))
		if took < batchTime.Seconds() {
			batch *= 2
		}
	}
	return best
}

func seconds(f func()) float64 {
	start := time.Now()
	f()
	return time.Since(start).Seconds()
}
