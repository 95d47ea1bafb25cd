package train

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/graph"
)

// The first rank times every operation once, and the link; later runs know the operations.
// A damaged table is measured again.
func TestMeasuredCosts(t *testing.T) {
	c, o := replicated(t, 2)
	c.Parallelism.DataParallelReplicateDegree = 1
	o.CostFolder = filepath.Join(t.TempDir(), "costs")
	o.Link = local.Link{Latency: 2 * time.Millisecond, Bandwidth: 100e6}
	c = within(c, 1<<30)
	open := func() *Trainer {
		r, err := New(context.Background(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	r := open()
	files, err := filepath.Glob(filepath.Join(o.CostFolder, "*.json"))
	if err != nil || len(files) != 1 || !strings.Contains(r.costNote, "operations timed") || !strings.HasSuffix(r.costNote, files[0]) || len(r.warnings) != 0 {
		t.Fatalf("%q in %v, %v, %v", r.costNote, files, err, r.warnings)
	}
	table, err := LoadCosts(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if table.Ranks != 2 || table.LinkLatency < 2e6 || table.LinkBandwidth > 1e9 {
		t.Errorf("%d ranks, link %v ns and %v bytes/s", table.Ranks, table.LinkLatency, table.LinkBandwidth)
	}
	dear := []string{"matmul", "grouped_matmul", "attention", "rms_norm", "to_host"}
	for _, n := range r.ranks[0].programs.first.Graph.Nodes {
		_, known := table.Ops[checkpoint.OpKey(n)]
		if want := n.Phase == graph.Forward && slices.Contains(dear, n.Kind); want && !known || known && !checkpoint.Timed(n) {
			t.Errorf("%s: known %v", checkpoint.OpKey(n), known)
		}
	}
	plan := slices.Collect(r.ranks[0].programs.describePlans())
	r = open()
	if !strings.HasPrefix(r.costNote, "known, ") || !slices.Equal(plan, slices.Collect(r.ranks[1].programs.describePlans())) {
		t.Errorf("again: %s", r.costNote)
	}
	if err := os.Truncate(files[0], 100); err != nil {
		t.Fatal(err)
	}
	r = open()
	if !strings.Contains(r.costNote, "operations timed") || len(r.warnings) != 1 || !strings.Contains(r.warnings[0], "unexpected EOF; they are measured again") {
		t.Errorf("damaged: %q, %v", r.costNote, r.warnings)
	}
	if _, err := LoadCosts(files[0]); err != nil {
		t.Error(err)
	}
	// Where nothing can be kept the run goes on.
	o.CostFolder = files[0]
	if r = open(); len(r.warnings) == 0 || !strings.Contains(r.warnings[len(r.warnings)-1], "not kept") {
		t.Errorf("a folder that is a file: %q, %v", r.costNote, r.warnings)
	}
}
