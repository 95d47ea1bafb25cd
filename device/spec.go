package device

import (
	"fmt"
	"slices"
)

// MaxRank is the largest number of dimensions of a tensor.
const MaxRank = 5

// Place says which memory a tensor lives in.
type Place uint8

const (
	// OnDevice is the device's own memory; an operation may not look at contents.
	OnDevice Place = iota
	// OnHost is host memory that an operation may read while it is being
	// enqueued, such as the split sizes of an all-to-all or a learning rate.
	OnHost
)

func (p Place) String() string {
	if p == OnHost {
		return "host"
	}
	return "device"
}

// Rows names a number of rows known only at run time. The zero value means that
// the shape is static. Tensors with the same Rows have the same live count.
type Rows int32

// Spec describes a tensor before it exists: what the graph knows of it.
type Spec struct {
	DType DType
	Shape []int // with Rows != 0, Shape[0] is the bound
	Rows  Rows
	Place Place
}

// NewSpec returns the spec of a static tensor on the device.
func NewSpec(d DType, shape ...int) Spec { return Spec{DType: d, Shape: slices.Clone(shape)} }

// Len is the number of elements, at the bound for dynamic rows.
func (s Spec) Len() int {
	n := 1
	for _, d := range s.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of the tensor, at the bound for dynamic rows.
func (s Spec) Bytes() int64 { return int64(s.Len()) * int64(s.DType.Size()) }

// Last is the extent of the last dimension, 1 for a scalar.
func (s Spec) Last() int {
	if len(s.Shape) == 0 {
		return 1
	}
	return s.Shape[len(s.Shape)-1]
}

// WithShape returns s with another shape and the same dtype, rows and place.
func (s Spec) WithShape(shape ...int) Spec {
	s.Shape = slices.Clone(shape)
	return s
}

// Equal reports whether both specs describe the same tensors.
func (s Spec) Equal(t Spec) bool {
	return s.DType == t.DType && s.Rows == t.Rows && s.Place == t.Place && slices.Equal(s.Shape, t.Shape)
}

// Validate reports what is impossible about s.
func (s Spec) Validate() error {
	if s.DType.Size() == 0 {
		return fmt.Errorf("invalid dtype")
	}
	if len(s.Shape) > MaxRank {
		return fmt.Errorf("rank %d is over the limit of %d: %v", len(s.Shape), MaxRank, s.Shape)
	}
	bytes := int64(s.DType.Size())
	for _, d := range s.Shape {
		if d < 0 {
			return fmt.Errorf("negative extent in shape %v", s.Shape)
		}
		if d > 0 && bytes > (1<<62)/int64(d) {
			return fmt.Errorf("shape %v overflows", s.Shape)
		}
		bytes *= int64(d)
	}
	if s.Rows != 0 && len(s.Shape) == 0 {
		return fmt.Errorf("a scalar has no dynamic rows")
	}
	return nil
}

// String gives "float32[4 256]", with "≤" before a dynamic extent and "@host"
// behind a host tensor.
func (s Spec) String() string {
	shape := fmt.Sprint(s.Shape)
	if s.Rows != 0 {
		shape = "[≤" + shape[1:]
	}
	if s.Place == OnHost {
		shape += "@host"
	}
	return s.DType.String() + shape
}
