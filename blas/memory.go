package blas

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
	"gonum.org/v1/gonum/blas"
)

// memory is a device.Buffer over a slice that someone else owns.
type memory struct {
	start unsafe.Pointer
	bytes int64
}

func (m *memory) Size() int64             { return m.bytes }
func (m *memory) Pointer() unsafe.Pointer { return m.start }
func (m *memory) Free()                   {}

// operand is the view of op(x), of so many rows and columns, as a tensor over m.
func operand[T float](m *memory, d device.DType, t blas.Transpose, rows, columns int, x []T, stride int) device.Tensor {
	*m = memory{unsafe.Pointer(unsafe.SliceData(x)), int64(len(x) * d.Size())}
	if t == blas.NoTrans {
		return device.NewMatrix(m, 0, d, rows, columns, stride)
	}
	return device.NewMatrix(m, 0, d, columns, rows, stride).Transpose(0, 1)
}
