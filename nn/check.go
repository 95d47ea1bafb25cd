package nn

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// refuse reports whether x is nothing to build with: after an earlier error, or
// because it is absent, which is then the error.
func refuse(b *graph.Builder, kind string, x graph.Value) (graph.Value, bool) {
	if b.Err() != nil || x.Node() == nil {
		return b.Fail("%s: the input is absent (graph.None) or of a graph that failed", kind), true
	}
	return graph.None, false
}

// wantFloats refuses inputs that kernels cannot compute with, or whose dtypes
// differ.
func wantFloats(in ...device.Spec) error {
	for _, s := range in {
		if s.DType != device.Float32 && s.DType != device.Float64 {
			return fmt.Errorf("want float32 or float64, have %v", s)
		}
		if s.DType != in[0].DType {
			return fmt.Errorf("dtypes differ: %v × %v", in[0], s)
		}
		if s.Place != device.OnDevice {
			return fmt.Errorf("want a tensor on the device, have %v: declare it with Input", s)
		}
	}
	return nil
}

// wantSame refuses inputs that are not all floats of one shape and dtype.
func wantSame(in ...device.Spec) error {
	if err := wantFloats(in...); err != nil {
		return err
	}
	for _, s := range in[1:] {
		if !slices.Equal(s.Shape, in[0].Shape) || s.Rows != in[0].Rows {
			return fmt.Errorf("shapes differ: %v × %v", in[0], s)
		}
	}
	return nil
}

// wantRows refuses scalars where a last dimension is needed.
func wantRows(s device.Spec) error {
	if len(s.Shape) == 0 {
		return fmt.Errorf("want at least one dimension, have the scalar %v", s)
	}
	return nil
}

// wantScalar refuses s unless it is one number.
func wantScalar(what string, s device.Spec) error {
	if len(s.Shape) != 0 {
		return fmt.Errorf("%s: want a scalar, have %v", what, s)
	}
	return nil
}

// wantIndices refuses ids and labels that are not int32 on the device.
func wantIndices(what string, s device.Spec) error {
	if s.DType != device.Int32 || s.Place != device.OnDevice {
		return fmt.Errorf("%s: want int32 on the device, have %v", what, s)
	}
	return nil
}

// rowsOf is the product of all dimensions but the last.
func rowsOf(s device.Spec) int {
	n := 1
	for _, d := range s.Shape[:len(s.Shape)-1] {
		n *= d
	}
	return n
}

// withLast returns s with another last dimension.
func withLast(s device.Spec, last int) device.Spec {
	s.Shape = slices.Clone(s.Shape)
	s.Shape[len(s.Shape)-1] = last
	return s
}
