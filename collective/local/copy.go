package local

import (
	"fmt"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// fetchRows copies this rank's rows out of every rank's tensor.
func (g *group) fetchRows(p *post) {
	to, row := 0, rowBytes(p.in)
	for r := range g.posts {
		other := &g.posts[r]
		from := 0
		for q := range g.rank {
			from += g.split(other.send, other.in, q)
		}
		n := g.split(other.send, other.in, g.rank)
		copyBytes(p.out, int64(to)*row, other.in, int64(from)*row, int64(n)*row)
		to += n
	}
}

// split is the number of rows of t that belong to rank r, by host counts int32
// [Size, n], or equal parts if counts is the zero Tensor.
func (g *group) split(counts, t device.Tensor, r int) int {
	if counts.IsZero() {
		return t.Dim(0) / g.Size()
	}
	n := 0
	for _, c := range device.Elements[int32](counts.Index(r)) {
		n += int(c)
	}
	return n
}

// splits reports whether the counts divide all rows of t.
func (g *group) splits(counts, t device.Tensor) bool {
	if !counts.IsZero() && (counts.Rank() != 2 || counts.Dim(0) != g.Size() || counts.DType() != device.Int32) {
		return false
	}
	n := 0
	for r := range g.posts {
		k := g.split(counts, t, r)
		if k < 0 {
			return false
		}
		n += k
	}
	return n == t.Dim(0)
}

// parts lists the rows of each rank, for errors.
func (g *group) parts(counts, t device.Tensor) []int {
	if !counts.IsZero() && (counts.Rank() != 2 || counts.Dim(0) != g.Size() || counts.DType() != device.Int32) {
		return nil
	}
	parts := make([]int, g.Size())
	for r := range parts {
		parts[r] = g.split(counts, t, r)
	}
	return parts
}

// reduce has each rank sum one part of the elements over all ranks and then copy
// the other parts from those who summed them.
func (g *group) reduce(p *post, phase int) error {
	if phase == 0 {
		lo, hi := part(p.in.Len(), g.rank, g.Size())
		return g.sumInto(p.out, lo, lo, hi)
	}
	for r := range g.posts {
		if lo, hi := part(p.in.Len(), r, g.Size()); r != g.rank {
			copyElements(p.out, lo, g.posts[r].in, lo, hi-lo)
		}
	}
	return nil
}

// part is the range of elements that rank r of size sums.
func part(n, r, size int) (lo, hi int) { return n * r / size, n * (r + 1) / size }

// rowBytes is the size of one element of the first dimension.
func rowBytes(t device.Tensor) int64 {
	n := int64(t.DType().Size())
	for i := 1; i < t.Rank(); i++ {
		n *= int64(t.Dim(i))
	}
	return n
}

func copyElements(dst device.Tensor, to int, src device.Tensor, from, n int) {
	size := int64(src.DType().Size())
	copyBytes(dst, int64(to)*size, src, int64(from)*size, int64(n)*size)
}

func copyBytes(dst device.Tensor, to int64, src device.Tensor, from, n int64) {
	if n > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Add(dst.Pointer(), to)), n), unsafe.Slice((*byte)(unsafe.Add(src.Pointer(), from)), n))
	}
}

// sumInto writes the sums of the elements lo ≤ i < hi over all ranks, in their
// order, to dst from its element at on. Sums of floats are float64.
func (g *group) sumInto(dst device.Tensor, at, lo, hi int) error {
	switch dst.DType() {
	case device.Float32:
		sumRanks[float32, float64](g, dst, at, lo, hi)
	case device.Float64:
		sumRanks[float64, float64](g, dst, at, lo, hi)
	case device.Int32:
		sumRanks[int32, int64](g, dst, at, lo, hi)
	case device.Int64:
		sumRanks[int64, int64](g, dst, at, lo, hi)
	default:
		return fmt.Errorf("no sum of %v", dst.DType())
	}
	return nil
}

// sumRanks works block by block: dst may be one of the tensors that are summed, and
// a block is written only when all ranks' elements in it have been read.
func sumRanks[T float32 | float64 | int32 | int64, Sum float64 | int64](g *group, dst device.Tensor, at, lo, hi int) {
	var sums [512]Sum
	out := device.Elements[T](dst)[at : at+hi-lo]
	for ; lo < hi; lo += len(sums) {
		n := min(len(sums), hi-lo)
		clear(sums[:n])
		for r := range g.posts {
			for i, v := range device.Elements[T](g.posts[r].in)[lo : lo+n] {
				sums[i] += Sum(v)
			}
		}
		for i := range n {
			out[i] = T(sums[i])
		}
		out = out[n:]
	}
}
