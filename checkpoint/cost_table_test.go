package checkpoint_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
)

func someCosts() *checkpoint.CostTable {
	return &checkpoint.CostTable{Machine: "an abacus", Kernels: "beads", Threads: 2, Ranks: 3,
		Roofline: checkpoint.Roofline{FLOPs: 1e9, Bandwidth: 1e9, LinkBandwidth: 1e8, LinkLatency: 500, Launch: 7},
		Ops:      map[string]int64{}}
}

func TestCostTable(t *testing.T) {
	g := build(t, func(b *graph.Builder, x graph.Value) graph.Value {
		return chain(b, x, "matmul", "exp", "all_to_all", "wait")
	})
	table := someCosts()
	for _, n := range g.Nodes {
		if n.Kind == "matmul" || n.Kind == "all_to_all" {
			table.Ops[checkpoint.OpKey(n)] = 12345
		}
	}
	want := map[string]int64{"matmul:0": 12345, "exp:0": 7 + 1, "all_to_all:0": 7 + 500 + 1024*10, "wait:0": 0}
	for _, n := range g.Nodes {
		if w, ok := want[n.Name]; ok && table.Nanoseconds(n) != w {
			t.Errorf("%s costs %d ns, want %d", n.Name, table.Nanoseconds(n), w)
		}
	}
	text, err := table.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := checkpoint.ParseCostTable(text); err != nil || !reflect.DeepEqual(again, table) {
		t.Errorf("read again: %+v, %v", again, err)
	}
}

// Plans depend on the graph and the table alone.
func TestPlansFromOneTableAreEqual(t *testing.T) {
	costs := someCosts()
	g := plannedModel(t)
	for i, n := range g.Nodes {
		if checkpoint.Timed(n) && i%3 == 0 {
			costs.Ops[checkpoint.OpKey(n)] = int64(1000 + i*i%977)
		}
	}
	text, err := costs.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for range 2 {
		g := plannedModel(t)
		table, err := checkpoint.ParseCostTable(text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := checkpoint.NewPlanner(g, checkpoint.Options{}, table)
		if err != nil {
			t.Fatal(err)
		}
		smallest, err := p.Smallest()
		if err != nil {
			t.Fatal(err)
		}
		none, err := graph.Rehearse(g, graph.SaveAll(g), nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := p.Plan((smallest.PeakBytes + none) / 2)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for line := range q.Plan.Describe(g) {
			all = append(all, line)
		}
		lines = append(lines, all)
	}
	if !reflect.DeepEqual(lines[0], lines[1]) || !strings.Contains(strings.Join(lines[0], "\n"), "rerun (budget)") {
		t.Errorf("two plans from one table:\n%v\n%v", lines[0], lines[1])
	}
}

func TestDamagedCostTable(t *testing.T) {
	text, err := someCosts().Encode()
	if err != nil {
		t.Fatal(err)
	}
	whole := string(text)
	for damaged, want := range map[string]string{
		"":                                     "EOF",
		whole[:len(whole)/2]:                   "EOF",
		whole + "{}":                           "follows the table",
		strings.Replace(whole, "1", "2", 1):    "lethe_costs is version 2, this program reads 1",
		strings.Replace(whole, "flop", "f", 1): "unknown field",
		strings.Replace(whole, "500", "-5", 1): "link_latency_ns must be",
		strings.Replace(whole, "1000000000", "0", 1):               "must be at least 1",
		strings.Replace(whole, "{}", `{"exp": 86400000000001}`, 1): `ops_ns "exp" must be`,
	} {
		if _, err := checkpoint.ParseCostTable([]byte(damaged)); err == nil || !strings.HasPrefix(err.Error(), "checkpoint: cost table: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q, from %q", err, want, damaged)
		}
	}
}

// What is read is written as the same table.
func FuzzCostTable(f *testing.F) {
	text, err := someCosts().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"lethe_costs":1,"ops_ns":{"a":1}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := checkpoint.ParseCostTable(text)
		if err != nil {
			return
		}
		written, err := table.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := checkpoint.ParseCostTable(written)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := again.Encode(); err != nil || !bytes.Equal(written, twice) {
			t.Errorf("%s\nthen\n%s, %v", written, twice, err)
		}
	})
}
