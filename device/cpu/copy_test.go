package cpu

import (
	"testing"

	"github.com/lethe-go/lethe/device"
	"pgregory.net/rapid"
)

// TestCopyRows copies between slices of tensors, repeated or not, of widths that are
// mostly whole vectors, and looks at everything around the destination.
func TestCopyRows(t *testing.T) {
	const untouched = 0xA5
	for _, l := range gemmTestLevels(t) {
		q := gemmTestQueue(t, l, 2)
		t.Run(l, rapid.MakeCheck(func(r *rapid.T) {
			d := rapid.SampledFrom([]device.DType{device.Float32, device.Float64, device.BFloat16}).Draw(r, "dtype")
			shape := rapid.SliceOfN(rapid.IntRange(1, 9), 0, 3).Draw(r, "outer")
			shape = append(shape, rapid.OneOf(rapid.SampledFrom([]int{4, 8, 16, 64}), rapid.IntRange(1, 40)).Draw(r, "width"))
			dst := drawSlice(r, d, shape, -1)
			defer dst.Buffer().Free()
			src := drawSlice(r, d, shape, rapid.IntRange(-1, len(shape)-1).Draw(r, "repeated"))
			defer src.Buffer().Free()
			got, from := bufferBytes(dst), bufferBytes(src)
			for i := range got {
				got[i] = untouched
			}
			for i := range from {
				from[i] = uint8(i*7 + i>>8)
			}
			q.Copy(dst, src)
			size, index := d.Size(), make([]int, len(shape))
			for range dst.Len() {
				x, y := int(dst.Offset()), int(src.Offset())
				for dim, i := range index {
					x, y = x+i*dst.Stride(dim)*size, y+i*src.Stride(dim)*size
				}
				for i := range size {
					if got[x+i] != from[y+i] {
						r.Fatalf("%v from %v: element %v differs", dst, src, index)
					}
					got[x+i] = untouched
				}
				for dim := len(index) - 1; dim >= 0; dim-- {
					if index[dim]++; index[dim] < shape[dim] {
						break
					}
					index[dim] = 0
				}
			}
			for i, b := range got {
				if b != untouched {
					r.Fatalf("%v from %v: byte %d, outside dst, was overwritten", dst, src, i)
				}
			}
		}))
	}
}

// drawSlice is a slice of a larger tensor, with one dimension repeated unless it is -1.
func drawSlice(r *rapid.T, d device.DType, shape []int, repeated int) device.Tensor {
	outer, n := make([]int, len(shape)), 1
	for i, s := range shape {
		outer[i] = s + rapid.IntRange(0, 2).Draw(r, "more")
		n *= outer[i]
	}
	memory, err := allocate(int64(n * d.Size()))
	if err != nil {
		r.Fatal(err)
	}
	x := device.NewTensor(memory, 0, d, outer...)
	for i, s := range shape {
		first := rapid.IntRange(0, outer[i]-s).Draw(r, "first")
		if i == repeated {
			x = x.Slice(i, first, first+1)
		} else {
			x = x.Slice(i, first, first+s)
		}
	}
	return x.Broadcast(shape...)
}

func bufferBytes(t device.Tensor) []byte {
	return slice[byte](t.Buffer().Pointer(), 0, int(t.Buffer().Size()))
}
