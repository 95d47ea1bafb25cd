package train

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/instrument"
	"github.com/lethe-go/lethe/graph"
)

func readSnapshot(t *testing.T, path string) (s MemorySnapshot) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// asker is a tracer that calls at every step.
type asker struct{ ask func(index int) }

func (a asker) Begin(index int, _ *graph.Step) { a.ask(index) }
func (asker) Waited(*graph.Step)               {}
func (asker) End(error)                        {}
func (asker) Started(*graph.Step)              {}
func (asker) Finished(*graph.Step)             {}

// checkSums checks that a snapshot's parts add up to its whole.
func checkSums(t *testing.T, m RankMemory) {
	t.Helper()
	var persistent int64
	for _, v := range m.Variables {
		persistent += v.Bytes
	}
	if persistent != m.PersistentBytes || persistent <= 0 {
		t.Errorf("variables of %d bytes, want %d", persistent, m.PersistentBytes)
	}
	for name, sums := range map[string][]HeldSum{"use": m.ByUse, "region": m.ByRegion, "kind": m.ByKind} {
		var all int64
		for _, s := range sums {
			all += s.Bytes
		}
		if all != m.LiveBytes {
			t.Errorf("by %s %d bytes, want %d", name, all, m.LiveBytes)
		}
	}
	if n := totalHeld(m.Values); n != m.LiveBytes {
		t.Errorf("values of %d bytes, want %d", n, m.LiveBytes)
	}
}

// At every moment of a step with dynamic rows a snapshot says what is alive, and the most it
// ever says is what an instrument measures, which knows nothing of plans.
func TestSnapshotTellsWhatIsAlive(t *testing.T) {
	c, model := profiledConfig(t)
	c.Training.GlobalBatchSize = 2
	c.State.Enable = false
	r, err := New(context.Background(), c, Options{Model: model, perRank: func(d device.Device) device.Device { return instrument.Wrap(d) }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := r.snapshot("between"); s.Step != 1 || s.Ranks[0].Program != "" || s.Ranks[0].LiveBytes != 0 || s.Ranks[1].Rank != 1 {
		t.Errorf("between Programs: %+v", s)
	}
	most := make([]int64, len(r.ranks))
	peaks := make([]int64, len(r.ranks))
	err = r.together(context.Background(), func(ctx context.Context, k *rank) error {
		m := k.machines.first.Machine
		seen, err := graph.Measure(ctx, m, graph.RunOptions{Step: 2})
		if err != nil {
			return err
		}
		peaks[k.index] = seen.Peak
		asked := 0
		m.Trace(asker{func(index int) {
			mine := r.snapshot("asked").Ranks[k.index]
			if mine.Program != "first" || mine.Index != index {
				t.Errorf("rank %d at %s %d, want first %d", k.index, mine.Program, mine.Index, index)
			}
			if asked++; asked%50 == 0 {
				checkSums(t, mine)
			}
			most[k.index] = max(most[k.index], mine.LiveBytes)
		}})
		defer m.Trace(nil)
		return m.Run(ctx, graph.RunOptions{Step: 2})
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range most {
		if most[i] != peaks[i] || peaks[i] <= 0 {
			t.Errorf("rank %d: at most %d bytes, measured are %d", i, most[i], peaks[i])
		}
	}
}

func TestSnapshotIsWritten(t *testing.T) {
	c, model := profiledConfig(t)
	r := runConfig(t, c, Options{Model: model})
	path, err := r.Snapshot("asked")
	if err != nil || path != filepath.Join(c.Job.DumpFolder, "memory", "step-000003.json") {
		t.Fatalf("%s, %v", path, err)
	}
	if s := readSnapshot(t, path); s.Cause != "asked" || s.Step != 3 || len(s.Ranks) != 2 || s.StateCopyBytes <= 0 {
		t.Errorf("%+v", s)
	}
	if page := report(t, c.Job.DumpFolder); !strings.Contains(page, "Memory snapshot") || !strings.Contains(page, "asked") {
		t.Error("the report does not show it")
	}
}

// What a refused plan would need is at its peak, and the error says where that is told.
func TestRefusalLeavesASnapshot(t *testing.T) {
	c, model := profiledConfig(t)
	_, err := New(context.Background(), c, Options{Model: model, memory: 1 << 16})
	path := filepath.Join(c.Job.DumpFolder, "memory", "refused.json")
	if err == nil || !strings.HasSuffix(err.Error(), "; what would hold it is in "+path) {
		t.Fatal(err)
	}
	s := readSnapshot(t, path)
	plan, err := PlanReportFor(c, Options{Model: model})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Ranks {
		checkSums(t, m)
		if want := plan.Rows[1].PeakBytes; m.LiveBytes != want || m.Program != "last" { // gradients live all through it
			t.Errorf("rank %d: %d bytes of %s, want the peak %d", m.Rank, m.LiveBytes, m.Program, want)
		}
	}
	if !strings.Contains(s.Cause, "this process may use 64.00 KiB") {
		t.Errorf("cause %q", s.Cause)
	}
}
