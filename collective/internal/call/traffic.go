package call

import "github.com/lethe-go/lethe/collective"

// Traffic is what a rank sends to others and receives from them in a group of size ranks:
// [collective.MovedBy], with the rows that an all-to-all really moves.
func (c *Call) Traffic(rank, size int) (sent, received int64) {
	var m collective.Moved
	switch c.Kind {
	case collective.KindAllToAll:
		row := RowBytes(c.In)
		return int64(c.In.Dim(0)-Split(c.Send, c.In, rank, size)) * row, int64(c.Out.Dim(0)-Split(c.Receive, c.Out, rank, size)) * row
	case collective.KindAllGather, collective.KindReduceScatter:
		m = collective.MovedBy(c.Kind, c.whole().Dim(0), RowBytes(c.In), 0, rank, size)
	case collective.KindAllReduce, collective.KindBroadcast:
		m = collective.MovedBy(c.Kind, c.In.Len(), int64(c.In.DType().Size()), c.Root, rank, size)
	}
	return m.Sent, m.Received
}
