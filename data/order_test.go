package data

import (
	"math"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device/philox"
	"pgregory.net/rapid"
)

func TestPermutationIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		p := newPermutation(n, rapid.Uint64().Draw(t, "key"))
		seen := make([]bool, n)
		for i := range n {
			x := p.at(i)
			if x < 0 || x >= n || seen[x] {
				t.Fatalf("place %d of %d holds %d, which is outside or a second time there", i, n, x)
			}
			seen[x] = true
		}
	})
}

// Over many epochs every document stands at every place, and every document follows
// every other, about equally often.
func TestPermutationIsUniform(t *testing.T) {
	const epochs = 20000
	for _, n := range []int{2, 3, 5, 13, 16} {
		place := make([]int, n*n)
		follows := make([]int, n*n)
		for epoch := range epochs {
			p := newPermutation(n, philox.Key(7, "data.order", epoch))
			for i := range n {
				place[i*n+p.at(i)]++
				if i > 0 {
					follows[p.at(i-1)*n+p.at(i)]++
				}
			}
		}
		chi := 0.0
		for _, seen := range place {
			expected := float64(epochs) / float64(n)
			chi += (float64(seen) - expected) * (float64(seen) - expected) / expected
		}
		// (n-1)² degrees of freedom; five standard deviations above the mean.
		freedom := float64((n - 1) * (n - 1))
		if limit := freedom + 5*math.Sqrt(2*freedom) + 5; chi > limit {
			t.Errorf("n=%d: places: χ² is %.1f, expected %.0f, limit %.1f", n, chi, freedom, limit)
		}
		expected := float64(epochs) / float64(n)
		for i, seen := range follows {
			if i/n != i%n && (float64(seen)-expected)*(float64(seen)-expected) > 36*expected {
				t.Errorf("n=%d: %d follows %d %d times, expected %.0f", n, i%n, i/n, seen, expected)
			}
		}
	}
}

func TestLargePermutationStaysInside(t *testing.T) {
	for _, n := range []int{1<<20 + 1, 1 << 40, 1<<62 + 12345} {
		p := newPermutation(n, 3)
		for i := range 1000 {
			if x := p.at(n - 1 - i); x < 0 || x >= n {
				t.Fatalf("n=%d: %d is outside", n, x)
			}
		}
	}
}

// Every epoch of a shuffle has every document once, and a window bounds how far each is
// moved.
func TestShuffleIsAPermutationWithinItsWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		window := rapid.IntRange(0, 60).Draw(t, "window")
		s := newShuffle(Options{Shuffle: true, ShuffleWindow: window, Seed: rapid.Uint64().Draw(t, "seed")}, rapid.IntRange(0, 3).Draw(t, "source"))
		epoch := rapid.Int64Range(0, 1<<40).Draw(t, "epoch")
		seen := make([]bool, n)
		for i := range n {
			x := s.at(n, epoch, i)
			if x < 0 || x >= n || seen[x] {
				t.Fatalf("place %d of %d holds %d, which is outside or a second time there", i, n, x)
			}
			seen[x] = true
			if d := x - i; window > 0 && max(d, -d) >= window {
				t.Fatalf("document %d is at place %d: window %d", x, i, window)
			}
		}
	})
}

// Blocks begin elsewhere in every epoch: over epochs every two neighbours change places,
// and a document gets to every place within the window.
func TestWindowHasNoFixedBorders(t *testing.T) {
	const n, window, epochs = 40, 8, 4000
	s := newShuffle(Options{Shuffle: true, ShuffleWindow: window, Seed: 5}, 0)
	moved := map[int]int{}
	exchanged := make([]int, n)
	place := make([]int, n)
	for epoch := range int64(epochs) {
		for i := range n {
			place[s.at(n, epoch, i)] = i
		}
		moved[place[n/2]-n/2]++
		for i := 1; i < n; i++ {
			if place[i] < place[i-1] {
				exchanged[i]++
			}
		}
	}
	for d := 1 - window; d < window; d++ {
		// A block holds both places with probability (window−|d|)/window, and then moves
		// the document there with 1/window.
		want := epochs * (window - math.Abs(float64(d))) / (window * window)
		if math.Abs(float64(moved[d])-want) > 6*math.Sqrt(want) {
			t.Errorf("moved by %d: %d times, expected %.0f", d, moved[d], want)
		}
	}
	for i := 1; i < n; i++ {
		// In one block with probability (window−1)/window, and then half the time.
		want := float64(epochs) * (window - 1) / (2 * window)
		if math.Abs(float64(exchanged[i])-want) > 6*math.Sqrt(want) {
			t.Errorf("%d comes before %d %d times, expected %.0f", i, i-1, exchanged[i], want)
		}
	}
}

// The order of the first source is what it has always been: states and runs depend on it.
func TestOrderIsAPromise(t *testing.T) {
	s := newShuffle(Options{Shuffle: true, Seed: 1}, 0)
	var got []int
	for i := range 10 {
		got = append(got, s.at(124, 2, i))
	}
	if want := []int{58, 92, 15, 76, 40, 48, 29, 78, 82, 38}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
