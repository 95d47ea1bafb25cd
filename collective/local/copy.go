package local

import (
	"unsafe"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
	"github.com/lethe-go/lethe/device"
)

// take reads what this rank receives out of all ranks' tensors, once all agree.
func (g *group) take(c *call.Call) error {
	for r := range g.posts {
		mine, other := c.Header(r, g.Size()), g.posts[r].Header(g.rank, g.Size())
		if err := call.Agree(g.rank, &mine, r, &other); err != nil {
			return err
		}
	}
	switch c.Kind {
	case collective.KindAllToAll:
		g.takeRows(c)
	case collective.KindAllReduce:
		lo, hi := collective.Share(c.In.Len(), g.rank, g.Size())
		g.sum(c.Out, lo, lo, hi)
	case collective.KindAllGather:
		for r := range g.posts {
			lo, hi := c.Piece(r)
			copyElements(c.Out, lo, g.posts[r].In, 0, hi-lo)
		}
	case collective.KindReduceScatter:
		lo, hi := c.Piece(g.rank)
		g.sum(c.Out, 0, lo, hi)
		call.Clear(c.Out, hi-lo)
	case collective.KindBroadcast:
		if g.rank != c.Root {
			copyElements(c.Out, 0, g.posts[c.Root].In, 0, c.Out.Len())
		}
	}
	return nil
}

// takeRows copies this rank's rows out of every rank's tensor.
func (g *group) takeRows(c *call.Call) {
	to, row := 0, call.RowBytes(c.In)
	for r := range g.posts {
		other := &g.posts[r]
		from := 0
		for q := range g.rank {
			from += call.Split(other.Send, other.In, q, g.Size())
		}
		n := call.Split(other.Send, other.In, g.rank, g.Size())
		copyBytes(c.Out, int64(to)*row, other.In, int64(from)*row, int64(n)*row)
		to += n
	}
}

// shareSums copies the parts of a sum from the ranks that formed them: each has summed
// one part of the elements, in its own tensor.
func (g *group) shareSums(c *call.Call) error {
	for r := range g.posts {
		if lo, hi := collective.Share(c.In.Len(), r, g.Size()); r != g.rank {
			copyElements(c.Out, lo, g.posts[r].In, lo, hi-lo)
		}
	}
	return nil
}

// sum writes the sums of the elements lo ≤ i < hi over all ranks to dst from its element
// at on.
func (g *group) sum(dst device.Tensor, at, lo, hi int) {
	if lo == hi {
		return
	}
	for r := range g.posts {
		g.terms[r] = element(g.posts[r].In, lo)
	}
	call.Sum(dst.DType(), element(dst, at), g.terms, hi-lo)
}

func element(t device.Tensor, i int) unsafe.Pointer {
	return unsafe.Add(t.Pointer(), i*t.DType().Size())
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
