package attention

import (
	"math"
	"testing"
)

// TestScaling compares with Hugging Face's formula, in terms of wavelengths.
func TestScaling(t *testing.T) {
	r := RoPE{Theta: 500_000, Dims: 128, Scaling: Llama3Scaling()}
	plain := RoPE{Theta: r.Theta, Dims: r.Dims}.frequencies()
	var kept, between, divided int
	for i, got := range r.frequencies() {
		wavelength := 2 * math.Pi / plain[i]
		want := plain[i]
		switch {
		case wavelength > 8192./1:
			want /= 8
			divided++
		case wavelength >= 8192./4:
			smooth := (8192/wavelength - 1) / (4 - 1)
			want = (1-smooth)*plain[i]/8 + smooth*plain[i]
			between++
		default:
			kept++
		}
		if math.Abs(got-want) > 1e-15*want {
			t.Errorf("frequency %d: %g, want %g", i, got, want)
		}
	}
	if kept != 29 || between != 6 || divided != 29 {
		t.Errorf("%d kept, %d interpolated, %d divided: want 29, 6 and 29", kept, between, divided)
	}
}

func TestPairs(t *testing.T) {
	for _, c := range []struct {
		mask    Mask
		queries int
		keys    int
		want    float64
	}{
		{Mask{}, 4, 4, 16},
		{Mask{Causal: true}, 4, 4, 10},
		{Mask{Causal: true, Window: 2}, 4, 4, 7},
		{Mask{Window: 2}, 4, 4, 13},
		{Mask{Block: 3}, 5, 5, 13},
		{Mask{Causal: true, Block: 3}, 5, 5, 9},
		{Mask{Causal: true}, 3, 2, 5},
	} {
		if got := c.mask.static().pairs(c.queries, c.keys); got != c.want {
			t.Errorf("%+v of %d queries and %d keys leaves %v pairs, want %v", c.mask.static(), c.queries, c.keys, got, c.want)
		}
	}
}
