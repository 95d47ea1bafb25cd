package modeltest

import (
	"fmt"
	"math"
	"testing"
)

// Bits of a run: the loss and every element of every gradient, of every step.
type Bits map[string][]uint64

// Bits makes steps passes over the batch.
func (m *Model) Bits(t *testing.T, steps int) Bits {
	t.Helper()
	out := Bits{}
	for step := range steps {
		out[fmt.Sprint("loss ", step+1)] = ToBits([]float64{m.Pass(t, step+1)})
		for _, name := range m.Names {
			out[fmt.Sprint(name, " ", step+1)] = ToBits(m.Gradient(name))
		}
	}
	return out
}

// ToBits keeps what == does not see.
func ToBits(values []float64) []uint64 {
	out := make([]uint64, len(values))
	for i, v := range values {
		out[i] = math.Float64bits(v)
	}
	return out
}

// Compare demands that b is want.
func (b Bits) Compare(t *testing.T, want Bits) {
	t.Helper()
	if len(b) != len(want) {
		t.Errorf("%d results, want %d", len(b), len(want))
	}
	for name, w := range want {
		for i, v := range b[name] {
			if v != w[i] {
				t.Errorf("%s: element %d is %v, want %v", name, i, math.Float64frombits(v), math.Float64frombits(w[i]))
				break
			}
		}
	}
}
