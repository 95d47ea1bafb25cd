package device

import (
	"fmt"
	"unsafe"
)

// Buffer is a range of memory that belongs to a device.
type Buffer interface {
	// Size in bytes.
	Size() int64
	// Pointer is the first byte's address on the device that owns the buffer.
	// It is nil for a buffer of size zero and after Free.
	Pointer() unsafe.Pointer
	// Free gives the memory back. No tensor over it may be used afterwards.
	Free()
}

// Tensor is a view of a buffer: it is a small value, copied freely, and owns
// nothing. Shape and strides count elements. The zero Tensor stands for "not
// there", such as an output that nobody reads.
type Tensor struct {
	buffer  Buffer
	offset  int64
	dtype   DType
	rank    int8
	dims    [MaxRank]int
	strides [MaxRank]int
}

// NewTensor returns a contiguous (row-major) view of b from a byte offset on.
// It panics when the view does not fit the buffer: a programmer's error.
func NewTensor(b Buffer, offset int64, d DType, shape ...int) Tensor {
	t := Tensor{buffer: b, offset: offset, dtype: d}
	t.setShape(shape)
	if offset < 0 || offset+t.Bytes() > b.Size() {
		panic("device: tensor outside its buffer")
	}
	return t
}

// NewMatrix returns a view of b from a byte offset on whose rows begin stride
// elements apart, stride ≥ columns. It panics like NewTensor; of the last row only its
// elements must be in the buffer.
func NewMatrix(b Buffer, offset int64, d DType, rows, columns, stride int) Tensor {
	t := Tensor{buffer: b, offset: offset, dtype: d}
	t.setShape([]int{rows, columns})
	if stride < columns {
		panic("device: rows of a matrix overlap")
	}
	t.strides[0] = stride
	if _, hi := t.Extent(); offset < 0 || hi > b.Size() {
		panic("device: tensor outside its buffer")
	}
	return t
}

func (t *Tensor) setShape(shape []int) {
	if len(shape) > MaxRank {
		panic("device: rank over MaxRank")
	}
	t.rank = int8(len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] < 0 {
			panic("device: negative extent")
		}
		t.dims[i], t.strides[i] = shape[i], n
		n *= shape[i]
	}
}

// IsZero reports whether t is the zero Tensor.
func (t Tensor) IsZero() bool { return t.buffer == nil }

func (t Tensor) DType() DType   { return t.dtype }
func (t Tensor) Rank() int      { return int(t.rank) }
func (t Tensor) Dim(i int) int  { return t.dims[i] }
func (t Tensor) Buffer() Buffer { return t.buffer }

// Offset is the byte offset of the first element in the buffer.
func (t Tensor) Offset() int64 { return t.offset }

// Stride is the distance, in elements, between neighbours along dimension i.
func (t Tensor) Stride(i int) int { return t.strides[i] }

// In returns the contiguous tensor of t's dtype and shape at a byte offset of a buffer.
func (t Tensor) In(b Buffer, offset int64) Tensor {
	return NewTensor(b, offset, t.dtype, t.dims[:t.rank]...)
}

// Shape returns a new slice with the extents.
func (t Tensor) Shape() []int { return append([]int(nil), t.dims[:t.rank]...) }

// Len is the number of elements.
func (t Tensor) Len() int {
	n := 1
	for i := range t.rank {
		n *= t.dims[i]
	}
	return n
}

// Bytes is the number of bytes of the elements.
func (t Tensor) Bytes() int64 { return int64(t.Len()) * int64(t.dtype.Size()) }

// Last is the extent of the last dimension, 1 for a scalar.
func (t Tensor) Last() int {
	if t.rank == 0 {
		return 1
	}
	return t.dims[t.rank-1]
}

// Contiguous reports whether the elements lie row-major without gaps, as those
// of an empty tensor do.
func (t Tensor) Contiguous() bool {
	if t.Len() == 0 {
		return true
	}
	n := 1
	for i := int(t.rank) - 1; i >= 0; i-- {
		if t.dims[i] != 1 && t.strides[i] != n {
			return false
		}
		n *= t.dims[i]
	}
	return true
}

// Extent is the byte range [lo, hi) of the buffer that t's elements span.
func (t Tensor) Extent() (lo, hi int64) {
	last := 0
	for i := range t.rank {
		if t.dims[i] == 0 {
			return t.offset, t.offset
		}
		last += (t.dims[i] - 1) * t.strides[i]
	}
	return t.offset, t.offset + int64(last+1)*int64(t.dtype.Size())
}

// Pointer is the address of the first element on the device, and some address in
// the buffer if there is none: an empty tensor may stand at the buffer's end.
func (t Tensor) Pointer() unsafe.Pointer {
	if t.offset >= t.buffer.Size() {
		return t.buffer.Pointer()
	}
	return unsafe.Add(t.buffer.Pointer(), t.offset)
}

// Reshape returns the same elements under another shape. t must be contiguous
// and have as many elements; anything else panics.
func (t Tensor) Reshape(shape ...int) Tensor {
	n := t.Len()
	if !t.Contiguous() {
		panic("device: reshape of a strided tensor")
	}
	t.setShape(shape)
	if t.Len() != n {
		panic("device: reshape changes the number of elements")
	}
	return t
}

// Matrix returns t as [rows, last dimension]; t must be contiguous.
func (t Tensor) Matrix() Tensor {
	last := t.Last()
	rows := 1
	for i := range int(t.rank) - 1 {
		rows *= t.dims[i]
	}
	return t.Reshape(rows, last)
}

// Transpose returns a view with dimensions i and j exchanged.
func (t Tensor) Transpose(i, j int) Tensor {
	t.dims[i], t.dims[j] = t.dims[j], t.dims[i]
	t.strides[i], t.strides[j] = t.strides[j], t.strides[i]
	return t
}

// Slice returns the view of the elements lo ≤ index < hi along dimension dim.
func (t Tensor) Slice(dim, lo, hi int) Tensor {
	if dim >= int(t.rank) || lo < 0 || hi < lo || hi > t.dims[dim] {
		panic("device: slice out of range")
	}
	t.offset += int64(lo*t.strides[dim]) * int64(t.dtype.Size())
	t.dims[dim] = hi - lo
	return t
}

// Index returns the view of one element along the first dimension.
func (t Tensor) Index(i int) Tensor {
	t = t.Slice(0, i, i+1)
	copy(t.dims[:], t.dims[1:t.rank])
	copy(t.strides[:], t.strides[1:t.rank])
	t.rank--
	return t
}

// Broadcast returns a view with the given shape in which missing leading
// dimensions and extents of 1 are repeated (stride 0). An extent that is
// neither equal nor 1 panics, and so does a shape with fewer dimensions.
func (t Tensor) Broadcast(shape ...int) Tensor {
	if len(shape) < int(t.rank) || len(shape) > MaxRank {
		panic("device: broadcast to a rank below its own or over MaxRank")
	}
	r := Tensor{buffer: t.buffer, offset: t.offset, dtype: t.dtype, rank: int8(len(shape))}
	for i := range shape {
		r.dims[i] = shape[i]
		j := i - (len(shape) - int(t.rank))
		switch {
		case j < 0:
		case t.dims[j] == shape[i]:
			r.strides[i] = t.strides[j]
		case t.dims[j] != 1:
			panic("device: broadcast of unequal extents")
		}
	}
	return r
}

// BroadcastTo is Broadcast to the shape of another tensor.
func (t Tensor) BroadcastTo(like Tensor) Tensor { return t.Broadcast(like.dims[:like.rank]...) }

// WithRows returns t narrowed, or widened up to its buffer, to n rows. It is
// how the executor sets the live count of a dynamic tensor.
func (t Tensor) WithRows(n int) Tensor {
	t.dims[0] = n
	return t
}

// String gives dtype and shape, never contents.
func (t Tensor) String() string {
	if t.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%v%v", t.dtype, t.dims[:t.rank])
}

// Number is a Go type with the memory layout of a [DType].
type Number interface {
	float32 | float64 | int32 | int64 | uint8 | uint16
}

// Raw returns the bytes of a contiguous tensor in memory the host can reach, without
// copying. The slice lives as long as the buffer. A strided tensor panics.
func Raw(t Tensor) []byte {
	if !t.Contiguous() {
		panic("device: Raw of a strided tensor")
	}
	if t.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(t.Pointer()), t.Bytes())
}

// Elements returns the elements of a contiguous tensor in memory the host can
// reach, without copying. The slice lives as long as the buffer. A dtype whose
// size is not that of T panics; float16 and bfloat16 are read as uint16.
func Elements[T Number](t Tensor) []T {
	var zero T
	if int(unsafe.Sizeof(zero)) != t.dtype.Size() || !t.Contiguous() {
		panic("device: Elements of another dtype or of a strided tensor")
	}
	n := t.Len()
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(t.Pointer()), n)
}
