package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// A tiny shape shows rows with all that is promised of them.
func TestOverlap(t *testing.T) {
	var out strings.Builder
	args := "--dim 32 --layers 2 --tokens 32 --steps 2 --links 100MB/s,1GB/s --json"
	if err := run(context.Background(), strings.Fields(args), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var rows []Row
	for line := range strings.Lines(out.String()) {
		var r Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if len(rows) != 2 || rows[0].Link != "100MB/s" || rows[1].Link != "1GB/s" {
		t.Fatal(rows)
	}
	for _, r := range rows {
		if !(r.ComputeSeconds > 0 && r.CommunicationSeconds > 0 && r.ExposedSeconds > 0 && r.StepSeconds > 0 && r.PredictedPct > 0 && r.PredictedPct <= 100) {
			t.Errorf("%+v", r)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"--links fast", "--links 0GB/s", "--shards 1", "--dim 8", "--steps 1"} {
		if err := run(context.Background(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%s: %v", args, err)
		}
	}
}
