package checkpoint_test

import (
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
)

func TestRoofline(t *testing.T) {
	costs := checkpoint.Roofline{FLOPs: 1e9, Bandwidth: 1e9, LinkBandwidth: 1e8, LinkLatency: 500, Launch: 7}
	g := build(t, func(b *graph.Builder, x graph.Value) graph.Value {
		return chain(b, x, "matmul", "view", "all_to_all", "wait")
	})
	want := map[string]int64{
		"matmul:0":     7 + 1,             // one FLOP
		"view:0":       0,                 // shares memory
		"all_to_all:0": 7 + 500 + 1024*10, // 1024 bytes over the link
		"wait:0":       0,
		"x":            0,
	}
	for _, n := range g.Nodes {
		if w, ok := want[n.Name]; ok && costs.Nanoseconds(n) != w {
			t.Errorf("%s costs %d ns, want %d", n.Name, costs.Nanoseconds(n), w)
		}
	}
}
