// Package call is what the backends of package collective share: the checks of one
// rank's call, and of its agreement with the other ranks' calls.
package call

import (
	"fmt"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// Call is what a rank brings to a collective.
type Call struct {
	Kind          collective.Kind
	Sequence      int // counts the collectives of a group, from 1
	Out, In       device.Tensor
	Receive, Send device.Tensor // rows by rank, see Split
	Root          int
	Caller        collective.Caller
}

// String names the call: kind, sequence number and node.
func (c *Call) String() string { return Name(c.Kind, c.Sequence, c.Caller.Node) }

// Name of a collective: kind, sequence number and node.
func Name(k collective.Kind, sequence int, node string) string {
	if node == "" {
		return fmt.Sprintf("%v number %d", k, sequence)
	}
	return fmt.Sprintf("%v number %d (%s)", k, sequence, node)
}

// Check tells what is wrong with a call by itself, in a group of size ranks.
func (c *Call) Check(size int) error {
	if c.Kind == collective.KindBarrier {
		return nil
	}
	out, in := c.Out, c.In
	if out.IsZero() || in.IsZero() || out.DType() != in.DType() || !out.Contiguous() || !in.Contiguous() {
		return fmt.Errorf("%v into %v: want two contiguous tensors of one dtype", in, out)
	}
	switch c.Kind {
	case collective.KindAllToAll:
		if in.Rank() < 1 || !sameRows(in, out) || !divides(c.Send, in, size) || !divides(c.Receive, out, size) {
			return fmt.Errorf("send %v in parts %v and receive %v in parts %v", in, parts(c.Send, in, size), out, parts(c.Receive, out, size))
		}
	case collective.KindAllGather, collective.KindReduceScatter:
		if whole, part := c.whole(), c.part(); in.Rank() < 1 || !sameRows(in, out) || part.Dim(0) != collective.PartRows(whole.Dim(0), size) {
			return fmt.Errorf("%v into %v, of %d ranks", in, out, size)
		}
	case collective.KindBroadcast:
		if c.Root < 0 || c.Root >= size {
			return fmt.Errorf("%v from root %d of %d", in, c.Root, size)
		}
	}
	if c.sums() && !collective.Summable(in.DType()) {
		return fmt.Errorf("no sum of %v", in.DType())
	}
	return nil
}

// whole is what an all-gather makes or a reduce-scatter divides, and part what a rank has of it.
func (c *Call) whole() device.Tensor {
	if c.Kind == collective.KindAllGather {
		return c.Out
	}
	return c.In
}

func (c *Call) part() device.Tensor {
	if c.Kind == collective.KindAllGather {
		return c.In
	}
	return c.Out
}

// Piece is the range of elements of the whole that rank r has in an all-gather, or gets in a
// reduce-scatter: all parts are equally long, and the last ones may reach beyond the end.
func (c *Call) Piece(r int) (lo, hi int) {
	n, end := c.part().Len(), c.whole().Len()
	return min(r*n, end), min((r+1)*n, end)
}

func (c *Call) sums() bool {
	return c.Kind == collective.KindAllReduce || c.Kind == collective.KindReduceScatter
}

// sameRows reports whether two tensors have the same extents behind the first.
func sameRows(a, b device.Tensor) bool {
	if a.Rank() != b.Rank() {
		return false
	}
	for i := 1; i < a.Rank(); i++ {
		if a.Dim(i) != b.Dim(i) {
			return false
		}
	}
	return true
}

// RowBytes is the size of one element of the first dimension.
func RowBytes(t device.Tensor) int64 {
	n := int64(t.DType().Size())
	for i := 1; i < t.Rank(); i++ {
		n *= int64(t.Dim(i))
	}
	return n
}

// Split is the number of rows of t that belong to rank r, by host counts int32
// [size, n], or equal parts if counts is the zero Tensor.
func Split(counts, t device.Tensor, r, size int) int {
	if counts.IsZero() {
		return t.Dim(0) / size
	}
	n := 0
	for _, c := range device.Elements[int32](counts.Index(r)) {
		n += int(c)
	}
	return n
}

// countable reports whether Split may read the counts.
func countable(counts device.Tensor, size int) bool {
	return counts.IsZero() || counts.Rank() == 2 && counts.Dim(0) == size && counts.DType() == device.Int32 && counts.Contiguous()
}

// divides reports whether the counts divide all rows of t.
func divides(counts, t device.Tensor, size int) bool {
	if !countable(counts, size) {
		return false
	}
	n := 0
	for r := range size {
		k := Split(counts, t, r, size)
		if k < 0 {
			return false
		}
		n += k
	}
	return n == t.Dim(0)
}

// parts lists the rows of each rank, for errors.
func parts(counts, t device.Tensor, size int) []int {
	if !countable(counts, size) || t.Rank() < 1 {
		return nil
	}
	parts := make([]int, size)
	for r := range parts {
		parts[r] = Split(counts, t, r, size)
	}
	return parts
}
