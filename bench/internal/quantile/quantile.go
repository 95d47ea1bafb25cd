// Package quantile sums up repeated measurements.
package quantile

import (
	"math"
	"slices"
	"time"
)

// Milliseconds is the smallest time that a share q of all is not above, 0 if there are none.
func Milliseconds(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return float64(sorted[max(at, 0)]) / float64(time.Millisecond)
}

// Of is the quantile q of at least one number, interpolated between the two nearest.
func Of(x []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	at := q * float64(len(sorted)-1)
	lo := int(at)
	hi := min(lo+1, len(sorted)-1)
	return sorted[lo] + (at-float64(lo))*(sorted[hi]-sorted[lo])
}

// Median is the middle of at least one number, or the mean of the two in the middle.
func Median(x []float64) float64 { return Of(x, 0.5) }
