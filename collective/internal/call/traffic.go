package call

import "github.com/lethe-go/lethe/collective"

// Traffic is the number of bytes that a rank sends to others and receives from them in
// a group of size ranks: n being the bytes of the tensor that a rank brings,
//
//	all_to_all       the rows for other ranks, and from them
//	all_reduce       2·(size−1)/size·n: each rank sums one part, then all gather the parts
//	all_gather       (size−1)·n
//	reduce_scatter   (size−1)/size·n
//	broadcast        (size−1)·n sent by root, n received by each other rank
//	barrier          nothing
func (c *Call) Traffic(rank, size int) (sent, received int64) {
	if c.Kind == collective.KindBarrier {
		return 0, 0
	}
	n, others := c.In.Bytes(), int64(size-1)
	switch c.Kind {
	case collective.KindAllToAll:
		row := RowBytes(c.In)
		return int64(c.In.Dim(0)-Split(c.Send, c.In, rank, size)) * row, int64(c.Out.Dim(0)-Split(c.Receive, c.Out, rank, size)) * row
	case collective.KindAllReduce:
		lo, hi := Part(c.In.Len(), rank, size)
		own := int64(hi-lo) * int64(c.In.DType().Size())
		return n - own + others*own, others*own + n - own
	case collective.KindAllGather:
		return others * n, others * n
	case collective.KindReduceScatter:
		return n - c.Out.Bytes(), others * c.Out.Bytes()
	}
	if rank == c.Root {
		return others * n, 0
	}
	return 0, n
}
