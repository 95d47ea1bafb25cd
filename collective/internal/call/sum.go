package call

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// Sum writes the elementwise sums of n elements, one term from each rank in the order
// of ranks, to out. Sums of floats are formed in float64, those of integers in int64,
// and rounded once. out may be one of the terms.
func Sum(d device.DType, out unsafe.Pointer, terms []unsafe.Pointer, n int) {
	switch d {
	case device.Float32:
		sum[float32, float64](out, terms, n)
	case device.Float64:
		sum[float64, float64](out, terms, n)
	case device.Int32:
		sum[int32, int64](out, terms, n)
	case device.Int64:
		sum[int64, int64](out, terms, n)
	default:
		panic("call: no sum of " + d.String())
	}
}

// sum works block by block: a block is written only when all terms in it have been
// read.
func sum[T float32 | float64 | int32 | int64, Wide float64 | int64](out unsafe.Pointer, terms []unsafe.Pointer, n int) {
	var sums [512]Wide
	for lo := 0; lo < n; lo += len(sums) {
		block := sums[:min(len(sums), n-lo)]
		clear(block)
		for _, t := range terms {
			for i, v := range unsafe.Slice((*T)(t), n)[lo : lo+len(block)] {
				block[i] += Wide(v)
			}
		}
		result := unsafe.Slice((*T)(out), n)[lo : lo+len(block)]
		for i, v := range block {
			result[i] = T(v)
		}
	}
}

// Clear sets the elements of a contiguous tensor behind the first n to zero.
func Clear(t device.Tensor, n int) {
	if size := t.DType().Size(); n < t.Len() {
		clear(unsafe.Slice((*byte)(unsafe.Add(t.Pointer(), n*size)), (t.Len()-n)*size))
	}
}
