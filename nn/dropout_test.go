package nn_test

import (
	"math"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// dropOnes runs two dropouts of ones with a number of workers.
func dropOnes(t *testing.T, workers, step int) (first, second []float64) {
	t.Helper()
	b := graph.New(newStore(t, workers))
	x := b.Full(1, device.Float64, 200, 50)
	b.Output("first", nn.Dropout(b, x, 0.25))
	b.Output("second", nn.Dropout(b, x, 0.25))
	m := newMachine(t, b)
	run(t, m, step)
	return floats(m, "first"), floats(m, "second")
}

func TestDropoutIsReproducible(t *testing.T) {
	first, second := dropOnes(t, 1, 1)
	again, _ := dropOnes(t, 2, 1)
	if !slices.Equal(first, again) {
		t.Error("another number of workers draws other numbers")
	}
	if later, _ := dropOnes(t, 1, 2); slices.Equal(first, later) {
		t.Error("another step draws the same numbers")
	}
	if slices.Equal(first, second) {
		t.Error("two dropouts of one scope draw the same numbers")
	}
}

func TestDropoutKeepRate(t *testing.T) {
	first, _ := dropOnes(t, 2, 1)
	kept := 0
	for i, v := range first {
		switch v {
		case 0:
		case 1 / 0.75:
			kept++
		default:
			t.Fatalf("element %d is %g, want 0 or 1/0.75", i, v)
		}
	}
	n := float64(len(first))
	if deviation := math.Sqrt(n * 0.25 * 0.75); math.Abs(float64(kept)-0.75*n) > 4*deviation {
		t.Errorf("%d of %v elements kept, want about three quarters", kept, n)
	}
}

func TestDropoutOfZeroIsIdentity(t *testing.T) {
	b := graph.New(newStore(t, 1))
	x := b.Input("x", device.Float32, 2)
	if nn.Dropout(b, x, 0) != x {
		t.Error("dropout with p = 0 adds an op")
	}
}
