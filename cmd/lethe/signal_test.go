//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMain lets the test binary be lethe itself, for what ends a process.
func TestMain(m *testing.M) {
	if os.Getenv("LETHE_TEST_MAIN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// runSignalled starts a long run and sends signals when it reports its first
// step. It returns the exit code and what the process printed behind that.
func runSignalled(t *testing.T, folder string, signals ...os.Signal) (code int, rest string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Steps are long enough for the second signal to come within one.
	c := exec.Command(exe, smallRun(folder, "--training.steps=1000", "--training.seq_len=256", "--training.local_batch_size=16")...)
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

func TestSecondSignalEndsAtOnce(t *testing.T) {
	code, text := runSignalled(t, t.TempDir(), syscall.SIGTERM, os.Interrupt)
	if code != exitFailed || strings.Contains(text, "saved") {
		t.Errorf("code %d, %s", code, text)
	}
}
