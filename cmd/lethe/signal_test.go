//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/train"
)

// TestMain lets the test binary be lethe itself, for what ends a process.
func TestMain(m *testing.M) {
	if os.Getenv("LETHE_TEST_MAIN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// runSignalled starts a long run of two ranks and sends signals when it reports its first
// step. It returns the exit code and what the process printed behind that.
func runSignalled(t *testing.T, folder string, signals ...os.Signal) (code int, rest string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Steps are long enough for the second signal to come within one.
	c := exec.Command(exe, smallRun(folder, "--training.steps=1000", "--training.seq_len=256", "--training.local_batch_size=8", "--parallelism.data_parallel_replicate_degree=2")...)
	c.Env = append(os.Environ(), "LETHE_TEST_MAIN=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill() // of no effect once it has ended
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "step: ") {
			continue
		}
		for _, s := range signals {
			if err := c.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		break
	}
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	c.Wait()
	return c.ProcessState.ExitCode(), rest + stderr.String()
}

func TestSignalSavesTheState(t *testing.T) {
	folder := t.TempDir()
	code, text := runSignalled(t, folder, syscall.SIGTERM)
	if code != exitStopped || !strings.Contains(text, "stopped at step ") {
		t.Fatalf("code %d, %s", code, text)
	}
	code, text = runSignalled(t, folder, os.Interrupt)
	if code != exitStopped {
		t.Errorf("the run that goes on: code %d, %s", code, text)
	}
}

// SIGUSR1 tells what holds memory, SIGUSR2 ends the run in order.
func TestSignalAsksForMemory(t *testing.T) {
	folder := t.TempDir()
	code, text := runSignalled(t, folder, syscall.SIGUSR1, syscall.SIGUSR2)
	if code != exitStopped || !strings.Contains(text, "what holds memory now is in "+folder) || !strings.Contains(text, "stopped at step ") {
		t.Fatalf("code %d, %s", code, text)
	}
	list, err := filepath.Glob(filepath.Join(folder, "memory", "step-*.json"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	raw, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	var s train.MemorySnapshot
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	if s.Cause != "signal: user defined signal 1" || len(s.Ranks) != 2 || s.Ranks[1].PersistentBytes <= 0 {
		t.Errorf("%s", raw)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	folder := t.TempDir()
	code, text := runSignalled(t, folder, syscall.SIGTERM, os.Interrupt)
	if code != exitFailed || strings.Contains(text, "saved") {
		t.Errorf("code %d, %s", code, text)
	}
	for rank := range 2 {
		var record flight.Record
		text, err := os.ReadFile(filepath.Join(folder, "flight", fmt.Sprintf("rank_%d.json", rank)))
		if err == nil {
			err = json.Unmarshal(text, &record)
		}
		if err != nil || record.Rank != rank || !strings.HasPrefix(record.Cause, "a second signal: ") || len(record.Collectives) == 0 {
			t.Errorf("rank %d: %v, a record of %d collectives about %q", rank, err, len(record.Collectives), record.Cause)
		}
	}
}
