package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/lethe-go/lethe/graph"
)

// CostTable is what running ops took on a machine: Costs that refine a Roofline by the
// times of single ops, each of which counts for all nodes of its kind and shapes. What
// collectives and unknown ops cost is estimated. All ranks, and whoever wants to repeat a
// plan elsewhere, take one table.
type CostTable struct {
	// Machine and Kernels tell what was measured: the processors and the kernel level. They
	// have no influence on costs.
	Machine, Kernels string
	// Threads of the device, and Ranks that shared it.
	Threads, Ranks int
	Roofline
	// Ops are nanoseconds of one run by OpKey.
	Ops map[string]int64
}

// OpKey is the kind of a node, the specs that it reads and writes, and its operations, which
// tell masks and the like apart.
func OpKey(n *graph.Node) string {
	var s strings.Builder
	s.WriteString(n.Kind)
	for _, e := range n.In {
		fmt.Fprintf(&s, " %v", e.Spec())
	}
	s.WriteString(" to")
	for _, o := range n.Out {
		fmt.Fprintf(&s, " %v", o)
	}
	fmt.Fprintf(&s, ", %.0f FLOPs", n.Cost.ExecutedFLOPs)
	return s.String()
}

// Timed reports whether the times of a node's op belong into a CostTable. A collective's
// depend on when the other ranks come.
func Timed(n *graph.Node) bool { return n.IsOp() && !n.IsView() && !n.Effects.Has(graph.Collective) }

// Nanoseconds implements Costs.
func (t *CostTable) Nanoseconds(n *graph.Node) int64 {
	if Timed(n) {
		if ns, ok := t.Ops[OpKey(n)]; ok {
			return ns
		}
	}
	return t.Roofline.Nanoseconds(n)
}

// costTableVersion is that of the file. A change of OpKey needs another.
const costTableVersion = 1

// costFile is a CostTable on disk.
type costFile struct {
	Version       int              `json:"lethe_costs"`
	Machine       string           `json:"machine"`
	Kernels       string           `json:"kernels"`
	Threads       int              `json:"threads"`
	Ranks         int              `json:"ranks"`
	FLOPs         float64          `json:"flops_per_second"`
	Bandwidth     float64          `json:"memory_bytes_per_second"`
	LinkBandwidth float64          `json:"link_bytes_per_second"`
	LinkLatency   int64            `json:"link_latency_ns"`
	Launch        int64            `json:"launch_ns"`
	Ops           map[string]int64 `json:"ops_ns"`
}

// Encode writes the table as JSON. Equal tables give equal bytes.
func (t *CostTable) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(costFile{costTableVersion, t.Machine, t.Kernels, t.Threads, t.Ranks,
		t.FLOPs, t.Bandwidth, t.LinkBandwidth, t.LinkLatency, t.Launch, t.Ops}, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("checkpoint: cost table: %w", err)
	}
	return append(text, '\n'), nil
}

// ParseCostTable reads what Encode wrote. Another version, an unknown key, or a rate or time
// that cannot be is an error.
func ParseCostTable(text []byte) (*CostTable, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var f costFile
	err := d.Decode(&f)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("something follows the table")
		}
	}
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: cost table: %w", err)
	}
	return &CostTable{Machine: f.Machine, Kernels: f.Kernels, Threads: f.Threads, Ranks: f.Ranks, Ops: f.Ops,
		Roofline: Roofline{FLOPs: f.FLOPs, Bandwidth: f.Bandwidth, LinkBandwidth: f.LinkBandwidth, LinkLatency: f.LinkLatency, Launch: f.Launch}}, nil
}

func (f *costFile) check() error {
	if f.Version != costTableVersion {
		return fmt.Errorf("lethe_costs is version %d, this program reads %d; have the costs measured again", f.Version, costTableVersion)
	}
	for _, x := range []struct {
		key  string
		rate float64
	}{{"flops_per_second", f.FLOPs}, {"memory_bytes_per_second", f.Bandwidth}, {"link_bytes_per_second", f.LinkBandwidth}} {
		if !(x.rate >= 1 && x.rate <= math.MaxFloat64) {
			return fmt.Errorf("%s must be at least 1: %v", x.key, x.rate)
		}
	}
	if err := checkTime("link_latency_ns", f.LinkLatency); err != nil {
		return err
	}
	if err := checkTime("launch_ns", f.Launch); err != nil {
		return err
	}
	for key, ns := range f.Ops {
		if err := checkTime(fmt.Sprintf("ops_ns %q", key), ns); err != nil {
			return err
		}
	}
	return nil
}

// longest time of an op is a day, so that sums of costs stay integers.
const longest = 24 * 3600 * 1e9

func checkTime(key string, ns int64) error {
	if ns < 0 || ns > longest {
		return fmt.Errorf("%s must be nanoseconds of at most a day: %d", key, ns)
	}
	return nil
}
