package maxflow

import (
	"testing"

	"pgregory.net/rapid"
)

// The flow is that of the best of all cuts, and the two sides are the smallest
// ones, in a random network; capacities can be changed and solved again.
func TestAgainstAllCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "nodes")
		type arc struct {
			from, to int
			capacity int64
		}
		w := New(n, 0, n-1)
		var arcs []arc
		for range rapid.IntRange(0, 20).Draw(t, "arcs") {
			a := arc{rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to"), 0}
			w.Arc(a.from, a.to, 7)
			arcs = append(arcs, a)
		}
		for range 2 {
			for i := range arcs {
				arcs[i].capacity = rapid.SampledFrom([]int64{0, 1, 2, 3, 5, 8, Unlimited}).Draw(t, "capacity")
				w.SetCapacity(2*i, arcs[i].capacity)
			}
			best, small, large := Unlimited, 0, 0
			for cut := 1; cut < 1<<(n-1); cut += 2 { // bit set: on the source side
				var value int64
				for _, a := range arcs {
					if cut>>a.from&1 == 1 && cut>>a.to&1 == 0 {
						value = min(value+a.capacity, Unlimited)
					}
				}
				switch {
				case value < best:
					best, small, large = value, cut, cut
				case value == best:
					small, large = small&cut, large|cut
				}
			}
			got := w.Solve()
			if best >= Unlimited {
				if got < Unlimited {
					t.Fatalf("flow %d in a network without a finite cut", got)
				}
				continue
			}
			if got != best {
				t.Fatalf("flow %d, the best cut is %d", got, best)
			}
			side := make([]bool, n)
			w.SourceSide(side)
			for i, s := range side {
				if s != (small>>i&1 == 1) {
					t.Fatalf("source side %v, want %b", side, small)
				}
			}
			w.SinkSide(side)
			for i, s := range side {
				if s != (large>>i&1 == 0) {
					t.Fatalf("sink side %v, want the complement of %b", side, large)
				}
			}
		}
	})
}
