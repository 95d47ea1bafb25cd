package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// routingTasks are the argument blocks of the kernels of mixture-of-experts.
type routingTasks[T float] struct {
	topK            topKTask[T]
	columns         columnsTask[T]
	combine         combineTask[T]
	combineBackward combineBackwardTask[T]
	grouped         groupedTask[T]
}

// matrix is a tensor of rank 2 with contiguous rows.
type matrix[T any] struct {
	base                unsafe.Pointer
	rows, width, stride int
}

func matrixOf[T any](t device.Tensor) matrix[T] {
	if t.Rank() != 2 {
		panic("cpu: operand is not a matrix")
	}
	if t.Dim(1) > 1 && t.Stride(1) != 1 {
		panic("cpu: last dimension is not contiguous")
	}
	return matrix[T]{t.Pointer(), t.Dim(0), t.Dim(1), t.Stride(0)}
}

func (m *matrix[T]) row(i int) []T { return slice[T](m.base, i*m.stride, m.width) }

// rowBlock is how many rows of a width one task takes.
func rowBlock(width int) int { return max(1, grain/max(1, width)) }

// outside finds the first index that is not in [0, limit), or returns −1.
func outside(indices []int32, limit int) int {
	for i, x := range indices {
		if uint(int(x)) >= uint(limit) {
			return i
		}
	}
	return -1
}
