package quantile

import (
	"testing"
	"time"
)

func TestMilliseconds(t *testing.T) {
	times := []time.Duration{4 * time.Millisecond, time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond}
	for q, want := range map[float64]float64{0: 1, 0.25: 1, 0.5: 2, 0.51: 3, 0.99: 4, 1: 4} {
		if got := Milliseconds(times, q); got != want {
			t.Errorf("q %g: %g ms, want %g", q, got, want)
		}
	}
	if got := Milliseconds(nil, 0.5); got != 0 {
		t.Errorf("%g ms of no times", got)
	}
}

func TestMedian(t *testing.T) {
	for _, x := range []struct {
		numbers []float64
		want    float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}} {
		if got := Median(x.numbers); got != x.want {
			t.Errorf("median of %v is %g, want %g", x.numbers, got, x.want)
		}
	}
}

func TestOf(t *testing.T) {
	x := []float64{40, 10, 30, 20}
	for q, want := range map[float64]float64{0: 10, 0.25: 17.5, 0.5: 25, 0.9: 37, 1: 40} {
		if got := Of(x, q); got != want {
			t.Errorf("q %g of %v: %g, want %g", q, x, got, want)
		}
	}
}
