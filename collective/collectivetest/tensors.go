package collectivetest

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// memory is a buffer on the Go heap, where the race detector sees it.
type memory struct {
	words []uint64 // for alignment
	size  int64
}

func (m *memory) Size() int64 { return m.size }
func (m *memory) Free()       {}
func (m *memory) Pointer() unsafe.Pointer {
	if m.size == 0 {
		return nil
	}
	return unsafe.Pointer(&m.words[0])
}

// Tensor returns a new one of zeros, on the Go heap.
func Tensor(d device.DType, shape ...int) device.Tensor {
	n := int64(device.NewSpec(d, shape...).Bytes())
	return device.NewTensor(&memory{make([]uint64, (n+7)/8), n}, 0, d, shape...)
}

// bytes are those of a contiguous tensor.
func bytes(t device.Tensor) []byte {
	if t.Bytes() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(t.Pointer()), t.Bytes())
}

// mark gives byte i of a message its value.
func mark(from, to, round, i int) byte {
	h := uint32(from*7919+to*104729+round*1299709+i) * 2654435761
	return byte(h >> 24)
}

// scribble overwrites t with something else, as its owner may after any call.
func scribble(t device.Tensor) {
	b := bytes(t)
	for i := range b {
		b[i] ^= 0xa5
	}
}

// dtypes that rows may have; summable those that can be added.
var (
	dtypes   = []device.DType{device.Float32, device.Float64, device.BFloat16, device.Float16, device.Int32, device.Int64, device.Uint8}
	summable = []device.DType{device.Float32, device.Float64, device.Int32, device.Int64}
)
