package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/internal/openblas"
)

// TestRows runs the smallest product as a user would and reads what is printed.
func TestRows(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), []string{"--json", "--repeats=1", "--threads=1", "--run=^sgemm 64x64x64$"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	want := []string{"fma_peak"}
	if openblas.Linked {
		want = append(want, "openblas")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d rows, want those of %v:\n%s", len(lines), want, out.String())
	}
	for i, line := range lines {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if keys := slices.Sorted(maps.Keys(row)); !slices.Equal(keys, []string{"name", "peer", "ratio", "threads"}) {
			t.Errorf("keys %v", keys)
		}
		if ratio, _ := row["ratio"].(float64); row["name"] != "sgemm 64x64x64" || row["peer"] != want[i] || row["threads"] != 1.0 || !(ratio > 0) {
			t.Errorf("row %v", row)
		}
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--threads":         {"--threads=1,x"},
		"--run":             {"--run=("},
		"--repeats":         {"--repeats=0"},
		"unknown arguments": {"sgemm"},
	} {
		if err := run(context.Background(), args, nil, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one about %s", args, err, want)
		}
	}
}

// TestProfiled takes workloads by name, with overrides, and else looks for a file.
func TestProfiled(t *testing.T) {
	c, o, err := profiled("mid_dense 1x512", "--training.threads=2")
	if err != nil || o.Model == nil || c.Training.SeqLen != 512 || c.Training.Threads != 2 {
		t.Errorf("%+v, %+v, %v", c.Training, o, err)
	}
	if _, _, err := profiled("mid_dense 1x512", "--training.thread=2"); err == nil {
		t.Error("no error for an unknown key")
	}
	if _, _, err := profiled("mid_dense"); err == nil || !strings.Contains(err.Error(), "mid_dense") {
		t.Errorf("error %v, want one about the missing file", err)
	}
}

// TestProfile sees every kernel of a step in a part of it, and no part twice.
func TestProfile(t *testing.T) {
	p, err := profileOf(context.Background(), "../configs/quickstart.toml", 1, []string{"--training.seq_len=32", "--training.local_batch_size=1", "--validation.enable=false"})
	if err != nil {
		t.Fatal(err)
	}
	sum := p.optimizer
	for _, kind := range []string{"matmul", "grouped_matmul", "attention", "attention_backward", "output_loss", "rms_norm"} {
		if p.kinds[kind].seconds <= 0 {
			t.Errorf("no time in %s", kind)
		}
	}
	for _, s := range p.kinds {
		sum += s.seconds
	}
	if p.optimizer <= 0 || sum > p.total || p.working <= 0 || p.working > p.total {
		t.Errorf("optimizer %g, all kernels %g, workers busy %g, total %g", p.optimizer, sum, p.working, p.total)
	}
}

// TestWalks has the first tokens that make_tokens(1, 2, 4, 2048) of peers/torch_moe.py gives.
func TestWalks(t *testing.T) {
	batches, err := walks(2, 4, 2048)(context.Background(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer batches.Close()
	var b data.Batch
	if err := batches.Next(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	if want := []int32{1046, 1141, 1617, 1950, 1487, 1300, 365, 1833}; !slices.Equal(b.Tokens, want) {
		t.Errorf("tokens %v, want %v", b.Tokens, want)
	}
	if want := []int32{1141, 1617, 1950, 1568, 1300, 365, 1833, 980}; !slices.Equal(b.Labels, want) {
		t.Errorf("labels %v, want %v", b.Labels, want)
	}
}

func TestUnevenRows(t *testing.T) {
	sum, counts := 0, unevenRows(512, 64)
	for _, n := range counts {
		sum += n
	}
	if sum != 512 || slices.Max(counts) < 3*512/64 {
		t.Errorf("%d rows: %v", sum, counts)
	}
}
