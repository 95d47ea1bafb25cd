package checkpoint

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/pattern"
)

// Fate is what a plan comes to for one node.
type Fate uint8

const (
	// NotNeeded results are neither kept nor computed again: nothing after the
	// forward pass reads them, whatever the plan says.
	NotNeeded Fate = iota
	// Kept results stay in memory from forward to their last reader.
	Kept
	// Rerun results are dropped and computed again.
	Rerun
	// Shared results have no memory of their own: they are views.
	Shared
	// Offloaded results wait outside the arena.
	Offloaded
)

func (f Fate) String() string {
	return [...]string{"not needed", "kept", "rerun", "view", "offloaded"}[f]
}

// Line is what a Report says of one forward node.
type Line struct {
	Node  *graph.Node
	Entry graph.Entry // choice, who made it and why
	Fate  Fate
	// Bytes of the outputs that are kept, offloaded or computed again, at the bound for
	// dynamic rows. Outputs that nobody reads later do not count.
	Bytes int64
	// FLOPs of one run of the node.
	FLOPs float64
}

// Report shows what becomes of each forward node under a plan. Storage is the
// compiler's affair: memory at the peak is in graph.Program.
type Report struct {
	Lines []Line // in construction order
}

// Explain reports on a plan of g. A value is needed if a backward node, or one
// built after Backward, reads it, or a node that is run again for one of these.
func Explain(g *graph.Graph, p *graph.Plan) Report {
	needed := neededOutputs(g, p)
	var r Report
	for _, n := range g.Nodes {
		if n.Phase != graph.Forward || !n.IsOp() {
			continue
		}
		l := Line{Node: n, Entry: entryOf(p, n), FLOPs: n.Cost.ExecutedFLOPs}
		for i, need := range needed[n.ID] {
			if need {
				l.Bytes += n.Out[i].Bytes()
				l.Fate = Kept
			}
		}
		switch {
		case n.IsView():
			l.Fate = Shared
		case l.Fate == Kept && l.Entry.Choice == graph.Rerun:
			l.Fate = Rerun
		case l.Fate == Kept && l.Entry.Choice == graph.Offload:
			l.Fate = Offloaded
		}
		r.Lines = append(r.Lines, l)
	}
	return r
}

// neededOutputs says by node id and output what is read after the forward pass.
// Views count for their base.
func neededOutputs(g *graph.Graph, p *graph.Plan) [][]bool {
	needed := make([][]bool, len(g.Nodes))
	live := live(g)
	// A reader follows what it reads, so one sweep from the end sees all readers
	// of a node before the node.
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		runsLater := n.Phase != graph.Forward && live[i] || needed[i] != nil && entryOf(p, n).Choice == graph.Rerun
		if !n.IsOp() || n.IsView() || !runsLater {
			continue
		}
		for _, e := range n.In {
			base := e.Base()
			if needed[base.Node.ID] == nil {
				needed[base.Node.ID] = make([]bool, len(base.Node.Out))
			}
			needed[base.Node.ID][base.Out] = true
		}
	}
	return needed
}

func entryOf(p *graph.Plan, n *graph.Node) graph.Entry {
	if p == nil || n.ID >= len(p.Entries) {
		return graph.Entry{Why: "no plan"}
	}
	return p.Entries[n.ID]
}

// SavedBytes is the memory of all values that are kept, at the bound for dynamic
// rows.
func (r Report) SavedBytes() int64 { return r.bytes(Kept) }

// OffloadedBytes is the size of all values that wait outside the arena, at the bound for
// dynamic rows.
func (r Report) OffloadedBytes() int64 { return r.bytes(Offloaded) }

func (r Report) bytes(f Fate) int64 {
	var sum int64
	for _, l := range r.Lines {
		if l.Fate == f {
			sum += l.Bytes
		}
	}
	return sum
}

// RerunFLOPs is what running nodes again adds to a step.
func (r Report) RerunFLOPs() float64 {
	var sum float64
	for _, l := range r.Lines {
		if l.Fate == Rerun {
			sum += l.FLOPs
		}
	}
	return sum
}

// With returns the names of the nodes with a fate, in construction order.
func (r Report) With(f Fate) []string {
	var names []string
	for _, l := range r.Lines {
		if l.Fate == f {
			names = append(names, l.Node.Name)
		}
	}
	return names
}

// Filter returns the lines of the nodes that a pattern matches, in the syntax of
// Options.ForceRecompute; none if it is malformed.
func (r Report) Filter(text string) Report {
	p, err := pattern.Parse(text)
	if err != nil {
		return Report{}
	}
	var out Report
	for _, l := range r.Lines {
		if matched, _ := p.Match(l.Node.Name); matched {
			out.Lines = append(out.Lines, l)
		}
	}
	return out
}

// String is a table with one line per node and a line of totals.
func (r Report) String() string {
	var s strings.Builder
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "node\tkind\tfate\tbytes\tMFLOPs\tdecided by")
	count := map[Fate]int{}
	for _, l := range r.Lines {
		count[l.Fate]++
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%.4g\t%s\n", l.Node.Name, l.Node.Kind, l.Fate, l.Bytes, l.FLOPs/1e6, l.Entry.Why)
	}
	w.Flush()
	fmt.Fprintf(&s, "%d kept, %d bytes; ", count[Kept], r.SavedBytes())
	if count[Offloaded] > 0 {
		fmt.Fprintf(&s, "%d offloaded, %d bytes; ", count[Offloaded], r.OffloadedBytes())
	}
	fmt.Fprintf(&s, "%d rerun, %.4g MFLOPs; %d not needed; %d views\n",
		count[Rerun], r.RerunFLOPs()/1e6, count[NotNeeded], count[Shared])
	return s.String()
}
