package data

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestPermutationIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		p := newPermutation(n, rapid.Uint64().Draw(t, "seed"), rapid.Int64Range(0, 1<<40).Draw(t, "epoch"))
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
		for epoch := range int64(epochs) {
			p := newPermutation(n, 7, epoch)
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
		p := newPermutation(n, 3, 1)
		for i := range 1000 {
			if x := p.at(n - 1 - i); x < 0 || x >= n {
				t.Fatalf("n=%d: %d is outside", n, x)
			}
		}
	}
}
