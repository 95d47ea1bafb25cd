package remat

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// sideBySide runs functions that do not share what they write.
func sideBySide(functions ...func()) {
	var all sync.WaitGroup
	for _, f := range functions[1:] {
		all.Go(f)
	}
	functions[0]()
	all.Wait()
}

// inParts calls do for parts of the numbers below n that together are all of them, side by
// side. Where a part begins differs between machines.
func inParts(n int, do func(begin, end int)) {
	const least = 64
	parts := max(1, min(runtime.GOMAXPROCS(0), n/least))
	functions := make([]func(), parts)
	for i := range parts {
		functions[i] = func() { do(i*n/parts, (i+1)*n/parts) }
	}
	sideBySide(functions...)
}

// forEach calls do for the numbers below n, side by side.
func forEach(n int, do func(i int)) {
	var next atomic.Int64
	worker := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(i)
		}
	}
	sideBySide(slices.Repeat([]func(){worker}, max(1, min(n, runtime.GOMAXPROCS(0))))...)
}
