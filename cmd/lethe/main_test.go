package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lethe runs one command line.
func lethe(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

// smallRun is a command line that trains the quickstart's model on few tokens.
func smallRun(folder string, more ...string) []string {
	return append([]string{"train", "--config", "../../configs/quickstart.toml", "--job.dump_folder=" + folder,
		"--training.seq_len=16", "--training.local_batch_size=1", "--training.steps=2", "--lr_scheduler.warmup_steps=1",
		"--metrics.log_freq=1", "--validation.enable=false"}, more...)
}

func TestTrainAndCompare(t *testing.T) {
	a, b, c := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "c")
	for _, args := range [][]string{
		smallRun(a, "--activation_checkpoint.mode=none"),
		smallRun(b, "--activation_checkpoint.mode=full", "--training.threads=1"),
		smallRun(c, "--training.seed=1"),
	} {
		if code, out, err := lethe(args...); code != exitDone || err != "" || !strings.Contains(out, "step:  2  loss: ") {
			t.Fatalf("%v: code %d, stderr %q, stdout\n%s", args, code, err, out)
		}
	}
	if code, out, _ := lethe("compare", a, b); code != exitDone || !strings.HasPrefix(out, "equal: ") {
		t.Errorf("none on all threads and full on one: code %d, %s", code, out)
	}
	if code, out, _ := lethe("compare", a, c); code != exitFailed || !strings.Contains(out, "first step that differs: 1: loss") {
		t.Errorf("two seeds: code %d, %s", code, out)
	}
	html := filepath.Join(t.TempDir(), "report.html")
	if code, _, err := lethe("report", a, b, "--html", html); code != exitDone {
		t.Errorf("report: %d: %s", code, err)
	}
	if text, err := os.ReadFile(html); err != nil || !strings.Contains(string(text), "</html>") {
		t.Errorf("report: %v: %d bytes", err, len(text))
	}
	if code, _, err := lethe("compare", a, filepath.Join(t.TempDir(), "nothing")); code != exitUsage || !strings.Contains(err, "metrics.jsonl") {
		t.Errorf("no run: code %d, %s", code, err)
	}
}

func TestPlanJSON(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	code, out, stderr := lethe("plan", "--config=../../configs/llama3_debug.toml", "--json")
	if code != exitDone || stderr != "" {
		t.Fatalf("code %d, stderr %s", code, stderr)
	}
	var modes []string
	for line := range strings.Lines(out) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		modes = append(modes, row["mode"].(string))
		keys := []string{"saved_bytes", "peak_bytes", "arena_bytes", "total_bytes", "recomputed_flops", "recomputed_pct", "recomputed_seconds", "recomputed_time_pct"}
		if row["mode"] == "budget" {
			keys = append(keys, "budget_bytes", "bound_pct", "gap_pct")
			if row["total_bytes"].(float64) > row["budget_bytes"].(float64) {
				t.Errorf("a budget is not kept: %s", line)
			}
		}
		for _, key := range keys {
			if _, ok := row[key].(float64); !ok {
				t.Errorf("%s: no number %q", row["mode"], key)
			}
		}
		if len(row) != 1+len(keys) {
			t.Errorf("%d keys, want %d: %s", len(row), 1+len(keys), line)
		}
	}
	if strings.Join(modes, " ") != "none selective full"+strings.Repeat(" budget", 5) {
		t.Errorf("modes %v", modes)
	}
}

// A run within a budget keeps what it has measured, and reports reckon with that, or with a
// table that is named.
func TestPlanWithCosts(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	within := []string{"--activation_checkpoint.mode=budget", "--activation_checkpoint.memory_budget=20MiB"}
	train := smallRun(t.TempDir(), within...)
	if code, out, err := lethe(train...); code != exitDone || err != "" || !strings.Contains(out, "operations timed in") {
		t.Fatalf("code %d, stderr %q, stdout\n%s", code, err, out)
	}
	tables, err := filepath.Glob(filepath.Join(cache, "lethe", "costs", "*.json"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	plan := append([]string{"plan"}, train[1:]...)
	code, kept, stderr := lethe(plan...)
	if code != exitDone || !strings.Contains(kept, "costs of operations: "+tables[0]) || !strings.Contains(kept, "*budget") {
		t.Errorf("code %d, %s, %s", code, stderr, kept)
	}
	moved := filepath.Join(t.TempDir(), "costs.json")
	if err := os.Rename(tables[0], moved); err != nil {
		t.Fatal(err)
	}
	code, given, stderr := lethe(append(plan, "--costs", moved)...)
	if code != exitDone || strings.ReplaceAll(given, "the given table", tables[0]) != kept {
		t.Errorf("code %d, %s, %s", code, stderr, given)
	}
	if err := os.Truncate(moved, 99); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := lethe(append(plan, "--costs", moved)...); code != exitUsage || !strings.Contains(stderr, "costs.json: checkpoint: cost table: ") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

func TestPlanTableAndExplanation(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const config = "--config=../../configs/llama3_debug.toml"
	code, out, _ := lethe("plan", config)
	if code != exitDone || !strings.Contains(out, "6163712 parameters") || !strings.Contains(out, "*selective") || !strings.Contains(out, "costs of operations: estimates") {
		t.Errorf("code %d, %s", code, out)
	}
	code, out, _ = lethe("plan", config, "--explain", "layers.5.attention")
	if code != exitDone || !strings.Contains(out, "layers.5.attention.attention:0") || strings.Contains(out, "layers.4") {
		t.Errorf("code %d, %s", code, out)
	}
	code, _, stderr := lethe("plan", config, "--explain=layers.6")
	if code != exitUsage || !strings.Contains(stderr, "matches no value") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

// Everything that is wrong is one line on stderr that says where, what and how to
// mend it, and nothing on stdout.
func TestRefusals(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	unknown := write("unknown.toml", "[training]\ndataset = \"moby_dick\"\nstep = 3\n")
	text := write("short.txt", "Call me.")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"tarin"}, `unknown command "tarin"`},
		{[]string{"train"}, "give --config FILE"},
		{[]string{"train", "--config"}, "--config needs a value"},
		{[]string{"train", "--config", filepath.Join(folder, "none.toml")}, "give the path of a TOML file"},
		{[]string{"train", "--config", unknown}, "unknown.toml:3:1: unknown key training.step; did you mean training.steps?"},
		{[]string{"plan", "--config", unknown}, "unknown.toml:3:1: unknown key"},
		{smallRun(folder, "--training.stepss=1"), "unknown key training.stepss"},
		{smallRun(folder, "--training.steps=one"), "--training.steps=one"},
		{smallRun(folder, "--training.steps"), "--training.steps=VALUE"},
		{smallRun(folder, "--verbose"), "unknown option --verbose"},
		{smallRun(folder, "moby_dick"), `unexpected argument "moby_dick"`},
		{smallRun(folder, "--training.seq_len=0"), "training.seq_len"},
		{smallRun(folder, "--training.dataset="+text), "text too short"},
		{smallRun(folder, "--model.flavor=9B"), "debugmodel"},
		{[]string{"compare", folder}, "compare takes two runs, have 1"},
		{[]string{"report", folder}, "write lethe report RUN [RUN2] --html FILE"},
		{[]string{"report", folder, "--html", filepath.Join(folder, "x.html")}, "give the path of a TOML file"},
		{[]string{"compare", folder, "--fast"}, "unknown option --fast"},
		{[]string{"help", "tarin"}, "unknown command"},
	} {
		code, stdout, stderr := lethe(x.args...)
		if code != exitUsage || stdout != "" {
			t.Errorf("%v: code %d, stdout %q, want code 2", x.args, code, stdout)
		}
		if !strings.HasPrefix(stderr, "lethe: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, x.want) {
			t.Errorf("%v: stderr %q, want one line that says %q", x.args, stderr, x.want)
		}
	}
}

func TestBrokenStateIsRefused(t *testing.T) {
	folder := t.TempDir()
	if code, _, err := lethe(smallRun(folder)...); code != exitDone {
		t.Fatal(err)
	}
	tensors := filepath.Join(folder, "state", "step-00000002", "tensors-00000.safetensors")
	info, err := os.Stat(tensors)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(tensors, info.Size()-1); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := lethe(smallRun(folder, "--training.steps=3")...)
	if code != exitFailed || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "truncated") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
	if after, err := os.Stat(tensors); err != nil || after.Size() != info.Size()-1 {
		t.Errorf("the broken state was touched: %v", err)
	}
}

func TestHelp(t *testing.T) {
	code, out, _ := lethe("help")
	if code != exitDone || !strings.Contains(out, "lethe train") || !strings.Contains(out, "Exit codes") {
		t.Errorf("code %d, %s", code, out)
	}
	for _, args := range [][]string{{"help", "plan"}, {"plan", "--help"}, {"plan", "-h"}} {
		if code, out, _ := lethe(args...); code != exitDone || !strings.HasPrefix(out, "usage: lethe plan --config FILE") {
			t.Errorf("%v: code %d, %s", args, code, out)
		}
	}
	if code, _, err := lethe(); code != exitUsage || !strings.Contains(err, "lethe help COMMAND") {
		t.Errorf("no arguments: code %d, %s", code, err)
	}
}
