package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// A tiny model on a slow disk, on one that is not, and on the real one shows what the command
// claims, in rows with all keys.
func TestExperiment(t *testing.T) {
	var out, log strings.Builder
	args := "--dim 32 --layers 4 --tokens 64 --batch 96 --steps 2 --threads 2 --budget 0.7 --disks 100MB/s,100GB/s,real --json"
	args += " --dir " + t.TempDir()
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
	if len(rows) != 9 {
		t.Fatal(rows)
	}
	for i, r := range rows {
		if name := within[i%3].name; r["case"] != name || r["loss"] != rows[0]["loss"] || r["grad_norm"] != rows[0]["grad_norm"] || !(r["ratio"].(float64) > 0) {
			t.Errorf("row %d: %v", i, r)
		}
		if !(r["peak_bytes"].(float64) <= r["budget_bytes"].(float64)) {
			t.Errorf("row %d: %v", i, r)
		}
	}
	for i := range 3 { // what it comes to in which case is the machine's affair
		rerun, plan, move := rows[3*i], rows[3*i+1], rows[3*i+2]
		if rerun["moved_bytes"] != 0.0 || move["moved_bytes"] == 0.0 || !(plan["predicted_seconds"].(float64) <= rerun["predicted_seconds"].(float64)) {
			t.Errorf("disk %d: %v", i, rows[3*i:3*i+3])
		}
	}
	if disk := rows[6]; disk["disk"] != "real" || !(disk["bandwidth"].(float64) > 0) {
		t.Errorf("real disk: %v", disk)
	}
	for _, claim := range []string{"the same bits", "measured as predicted", "come back as predicted"} {
		if !strings.Contains(log.String(), claim) {
			t.Errorf("no %q in\n%s", claim, &log)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"--disks fast", "--disks 0GB/s", "--dim 24", "--steps 1", "--budget 2"} {
		if err := run(context.Background(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%s: %v", args, err)
		}
	}
	err := run(context.Background(), strings.Fields("--dim 16 --layers 1 --tokens 16 --batch 1 --steps 2 --threads 2 --disks 1GB/s"), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "raise --budget") {
		t.Errorf("a budget below the buffers of a disk: %v", err)
	}
}
