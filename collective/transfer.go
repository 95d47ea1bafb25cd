package collective

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Moved is the number of bytes that a rank sends to the others of its group and receives
// from them.
type Moved struct{ Sent, Received int64 }

// MovedBy is what one collective moves at a rank, of a whole of n units of some bytes each.
// The unit is an element for an all-reduce or a broadcast, else a row: the ranks' parts are
// of ⌈n / size⌉ rows, and padding does not travel.
//
//	all_to_all       what is for the other ranks, if all get as much, there and back
//	all_reduce       the others' parts and then its own to each; the same the other way
//	all_gather       its own part to each other rank; the others' parts
//	reduce_scatter   the others' parts; its own from each other rank
//	broadcast        the whole to each other rank, from root; the whole, at the others
//	barrier          nothing
func MovedBy(k Kind, n int, unit int64, root, rank, size int) Moved {
	whole, others := int64(n)*unit, int64(size-1)
	switch k {
	case KindAllToAll:
		return Moved{whole - whole/int64(size), whole - whole/int64(size)}
	case KindAllReduce:
		lo, hi := Share(n, rank, size)
		own := int64(hi-lo) * unit
		return Moved{whole - own + others*own, others*own + whole - own}
	case KindAllGather, KindReduceScatter:
		part := PartRows(n, size)
		own := int64(min((rank+1)*part, n)-min(rank*part, n)) * unit
		if k == KindAllGather {
			return Moved{others * own, whole - own}
		}
		return Moved{whole - own, others * own}
	case KindBroadcast:
		if rank == root {
			return Moved{Sent: others * whole}
		}
		return Moved{Received: whole}
	}
	return Moved{}
}

// PartRows is ⌈rows / size⌉: the rows of each rank's part of so many in an all-gather or a
// reduce-scatter, padding included.
func PartRows(rows, size int) int { return (rows + size - 1) / size }

// Share is the range of n elements that a rank adds up for all others in an all-reduce.
func Share(n, rank, size int) (lo, hi int) { return n * rank / size, n * (rank + 1) / size }

// Rounds is how often data crosses the way between ranks: an all-reduce is the all-to-all of
// a reduce-scatter, and an all-gather.
func (k Kind) Rounds() int {
	if k == KindAllReduce {
		return 2
	}
	return 1
}

// Transfer is what one run of an op moves at a rank of its group, and Most the most that it
// moves at any: all leave no earlier than that one.
type Transfer struct {
	Kind  Kind
	Group Group
	Moved
	Most Moved
}

// TransferOf tells what a run of op with inputs of these specs moves, the rows of an
// all-to-all being spread evenly; false if op is no collective.
func TransferOf(op graph.Op, in []device.Spec) (Transfer, bool) {
	c, ok := op.(interface {
		transfer(in []device.Spec) Transfer
	})
	if !ok {
		return Transfer{}, false
	}
	return c.transfer(in), true
}

// BalancedCounts are the live rows of a graph in which every rank sends as many rows to each
// other one: it then receives as many as it sends.
func BalancedCounts(g *graph.Graph) graph.Counts {
	counts := graph.Counts{}
	for _, n := range g.Nodes {
		a, ok := n.Op.(allToAll)
		if !ok || a.rows == 0 {
			continue
		}
		sent := n.In[0].Spec()
		if known, ok := counts[sent.Rows]; ok && sent.Rows != 0 {
			counts[a.rows] = known
		} else if _, ok := counts[a.rows]; !ok {
			counts[a.rows] = sent.Shape[0]
		}
	}
	return counts
}

func moves(k Kind, g Group, n int, unit int64, root int) Transfer {
	t := Transfer{k, g, MovedBy(k, n, unit, root, g.Rank(), g.Size()), Moved{}}
	for _, rank := range [...]int{0, root, g.Size() - 1} { // shares grow with the rank, parts shrink
		m := MovedBy(k, n, unit, root, rank, g.Size())
		t.Most = Moved{max(t.Most.Sent, m.Sent), max(t.Most.Received, m.Received)}
	}
	return t
}

// rowBytes is the size of one row.
func rowBytes(s device.Spec) int64 { return withRows(s, 1).Bytes() }

func elementBytes(s device.Spec) int64 { return int64(s.DType.Size()) }

func (a allGather) transfer(in []device.Spec) Transfer {
	return moves(KindAllGather, a.group, a.rows, rowBytes(in[0]), 0)
}

func (r reduceScatter) transfer(in []device.Spec) Transfer {
	return moves(KindReduceScatter, r.group, in[0].Shape[0], rowBytes(in[0]), 0)
}

func (a allReduce) transfer(in []device.Spec) Transfer {
	return moves(KindAllReduce, a.group, in[0].Len(), elementBytes(in[0]), 0)
}

func (a allReduceState) transfer(in []device.Spec) Transfer {
	return moves(KindAllReduce, a.group, in[0].Len(), elementBytes(in[0]), 0)
}

func (a allReduceStates) transfer(in []device.Spec) Transfer {
	n := 0
	for _, s := range in {
		n += s.Len()
	}
	return moves(KindAllReduce, a.group, n, elementBytes(in[0]), 0)
}

func (a allToAll) transfer(in []device.Spec) Transfer {
	return moves(KindAllToAll, a.group, in[0].Shape[0], rowBytes(in[0]), 0)
}

func (e exchangeCounts) transfer(in []device.Spec) Transfer {
	return moves(KindAllToAll, e.group, in[0].Shape[0], rowBytes(in[0]), 0)
}

func (c broadcast) transfer(in []device.Spec) Transfer {
	return moves(KindBroadcast, c.group, in[0].Len(), elementBytes(in[0]), c.root)
}

func (r reduce) transfer(in []device.Spec) Transfer {
	return moves(KindAllReduce, r.group, in[0].Len(), elementBytes(in[0]), 0)
}
