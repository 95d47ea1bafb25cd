package device

import "fmt"

// DType is the type of a tensor's elements.
type DType uint8

// BFloat16 and Float16 are storage types: [Kernels.Copy] converts them, sums
// over them are held in float32 or wider.
const (
	Invalid DType = iota
	Float32
	Float64
	BFloat16
	Float16
	Int32
	Int64
	Uint8
)

var dtypes = [...]struct {
	name string
	size int
}{
	Invalid:  {"invalid", 0},
	Float32:  {"float32", 4},
	Float64:  {"float64", 8},
	BFloat16: {"bfloat16", 2},
	Float16:  {"float16", 2},
	Int32:    {"int32", 4},
	Int64:    {"int64", 8},
	Uint8:    {"uint8", 1},
}

// Size is the number of bytes of one element.
func (d DType) Size() int { return dtypes[d.index()].size }

func (d DType) String() string { return dtypes[d.index()].name }

// IsFloat reports whether d can carry a gradient.
func (d DType) IsFloat() bool { return d >= Float32 && d <= Float16 }

func (d DType) index() DType {
	if int(d) >= len(dtypes) {
		return Invalid
	}
	return d
}

// ParseDType is the inverse of [DType.String].
func ParseDType(name string) (DType, error) {
	for d := Float32; int(d) < len(dtypes); d++ {
		if dtypes[d].name == name {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("device: unknown dtype %q: want one of float32, float64, bfloat16, float16, int32, int64, uint8", name)
}
