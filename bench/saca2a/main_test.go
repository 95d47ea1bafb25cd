package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// A tiny shape on one link shows what the command claims, in rows with all keys.
func TestExperiment(t *testing.T) {
	var out, log strings.Builder
	args := "--scale 64 --layers 2 --tokens 24 --steps 2 --threads 2 --links 200MB/s --json"
	if err := run(context.Background(), strings.Fields(args), &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	var rows []map[string]any
	for line := range strings.Lines(out.String()) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if len(rows) != 4 || rows[0]["case"] != "before" || rows[1]["case"] != "after" {
		t.Fatal(rows)
	}
	for i, name := range []string{"planned-before", "planned-after"} {
		if r := rows[2+i]; r["case"] != name || r["against"] != "before" && r["against"] != "after" || r["loss"] != rows[0]["loss"] {
			t.Errorf("%s: %v", name, r)
		}
	}
	before, after := rows[0], rows[1]
	for _, key := range strings.Fields("loss grad_norm link") {
		if before[key] != after[key] || after[key] == nil {
			t.Errorf("%s: %v before, %v after", key, before[key], after[key])
		}
	}
	// Counts, rows there and back in each of two layers; the gradients of the rows go both
	// times.
	for key, want := range map[string][2]float64{"backward_all_to_all": {10, 4}, "rerun_all_to_all": {6, 0}, "backward_host_syncs": {4, 0}} {
		if before[key] != want[0] || after[key] != want[1] {
			t.Errorf("%s: %v before, %v after, want %v", key, before[key], after[key], want)
		}
	}
	// Two layers; four ranks of 24 tokens, six choices, 32 floats; and counts.
	if more := after["saved_bytes"].(float64) - before["saved_bytes"].(float64); more != 2*(4*24*6*32*4+2*4*64*4) {
		t.Errorf("after saves %v bytes more", more)
	}
	for _, r := range rows {
		if !(r["tps"].(float64) > 0 && r["peak_bytes"].(float64) > 0 && r["exposed_seconds"].(float64) > 0) {
			t.Error(r)
		}
	}
	for _, claim := range []string{"measured as predicted", "the same bits", "as predicted"} {
		if !strings.Contains(log.String(), claim) {
			t.Errorf("no %q in\n%s", claim, &log)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"--links fast", "--links 0GB/s", "--cases before,later", "--steps 1", "--scale 65"} {
		if err := run(context.Background(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "have") {
			t.Errorf("%s: %v", args, err)
		}
	}
}
