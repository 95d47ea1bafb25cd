package checkpoint

import (
	"math"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Costs tells what running a node again would cost. Plans compare integers, so
// that equal graphs and equal costs give equal plans on every rank and machine:
// an implementation must not depend on where or when it is asked. Ranks that
// train together need one table.
type Costs interface {
	// Nanoseconds of one run of n, at least 0, at the bound of dynamic rows.
	Nanoseconds(n *graph.Node) int64
}

// Roofline estimates a node's time as the longest of its arithmetic, its memory
// traffic and, for collectives, its communication, plus a fixed time for the
// launch (Williams, Waterman, Patterson 2009).
type Roofline struct {
	// FLOPs a second, and bytes a second to and from memory.
	FLOPs, Bandwidth float64
	// LinkBandwidth is bytes a second between ranks; LinkLatency the nanoseconds
	// of an empty exchange, and of a host synchronization.
	LinkBandwidth float64
	LinkLatency   int64
	// Launch is the nanoseconds of an op without work.
	Launch int64
}

// DefaultCosts are those of a machine with 200 GFLOP/s, 20 GB/s of memory and
// links of 10 GB/s and 10 µs: what two cores with AVX-512 come to. Plans depend on
// the ratios alone, and are the same wherever they are made.
func DefaultCosts() Roofline {
	return Roofline{FLOPs: 200e9, Bandwidth: 20e9, LinkBandwidth: 10e9, LinkLatency: 10_000, Launch: 1_000}
}

// MemoryBandwidth is bytes a second to and from memory.
func (r Roofline) MemoryBandwidth() float64 { return r.Bandwidth }

// Nanoseconds implements Costs.
func (r Roofline) Nanoseconds(n *graph.Node) int64 {
	if !n.IsOp() || n.IsView() {
		return 0
	}
	seconds := max(n.Cost.ExecutedFLOPs/r.FLOPs, float64(n.Cost.BytesRead+n.Cost.BytesWritten)/r.Bandwidth)
	fixed := r.Launch
	if n.Effects.Has(graph.Collective) {
		seconds = max(seconds, float64(linkBytes(n))/r.LinkBandwidth)
	}
	if n.Effects.Has(graph.Collective) || n.Effects.Has(graph.HostSync) {
		fixed += r.LinkLatency
	}
	return fixed + int64(math.Round(seconds*1e9))
}

// linkBytes is what a collective sends or receives on a rank, whichever is more. How many
// rows come may be known only as it runs: it is then as many as are sent on average, and the
// bound that the memory plan goes by would be the number of ranks times too much.
func linkBytes(n *graph.Node) int64 {
	var bound, known int64
	count := func(s device.Spec) {
		if s.Place == device.OnHost {
			return // counts of rows, which do not travel
		}
		if bound = max(bound, s.Bytes()); s.Rows == 0 {
			known = max(known, s.Bytes())
		}
	}
	for _, e := range n.In {
		count(e.Spec())
	}
	for _, s := range n.Out {
		count(s)
	}
	if known == 0 {
		return bound
	}
	return known
}

// Disk is a graph.Pace: the times of ops, and those of copies to and from where values are
// offloaded to.
type Disk struct {
	Costs
	// Bandwidth is bytes a second, in either direction.
	Bandwidth float64
	// Memory is bytes a second to and from memory that copies share with ops; 0 if they share
	// none.
	Memory float64
}

// diskLatency is what a copy takes beside its bytes, in nanoseconds: a solid-state disk
// answers in about that time.
const diskLatency = 100_000

// CopyNanoseconds implements graph.Pace.
func (d Disk) CopyNanoseconds(bytes int64) int64 {
	return diskLatency + int64(math.Round(float64(bytes)/d.Bandwidth*1e9))
}

// copyPasses are how often a copied byte goes to or from memory: it is read in the arena and
// written to a buffer, read for its checksum and read by the disk, or the other way round.
const copyPasses = 4

// CopyLoad implements graph.Pace.
func (d Disk) CopyLoad(bytes int64) int64 {
	if d.Memory == 0 {
		return 0
	}
	return int64(math.Ceil(copyPasses * float64(bytes) / d.Memory * 1e9))
}
