// Package ranktest has what tests of several ranks have in common.
package ranktest

import "testing"

// AllocationsPerRun is the number of allocations on the Go heap of one more run by all ranks at
// once. Each is to have run before.
func AllocationsPerRun(t testing.TB, ranks ...func() error) float64 {
	start, done := make([]chan bool, len(ranks)), make(chan error, len(ranks))
	for r, run := range ranks {
		start[r] = make(chan bool)
		go func() {
			for range start[r] {
				done <- run()
			}
		}()
	}
	n := testing.AllocsPerRun(10, func() {
		for _, c := range start {
			c <- true
		}
		for range start {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	for _, c := range start {
		close(c)
	}
	return n
}

// Place is the index in a whole, of shape global, of element i of the part that has a shape and
// begins at an offset.
func Place(global, shape, offset []int, i int) int {
	at, step := 0, 1
	for d := len(shape) - 1; d >= 0; d-- {
		at += (offset[d] + i%shape[d]) * step
		i /= shape[d]
		step *= global[d]
	}
	return at
}
