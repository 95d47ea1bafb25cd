//go:build unix

package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A small run, killed often.
func TestChaos(t *testing.T) {
	var out strings.Builder
	c := chaos{
		config: "../../configs/quickstart.toml", steps: 36, interval: 1, seed: 2,
		overrides: []string{"--training.seq_len=32", "--training.local_batch_size=2", "--validation.enable=false", "--lr_scheduler.warmup_steps=5"},
		from:      400 * time.Millisecond, to: 1000 * time.Millisecond,
		folder: t.TempDir(), out: &out,
	}
	c.lethe = filepath.Join(c.folder, "lethe")
	if text, err := exec.Command("go", "build", "-o", c.lethe, "github.com/lethe-go/lethe/cmd/lethe").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	equal, err := c.run(context.Background())
	if err != nil || !equal {
		t.Errorf("equal: %v, %v", equal, err)
	}
	if !strings.Contains(out.String(), "SIGKILL after") {
		t.Error("nothing was killed")
	}
	t.Logf("\n%s", &out)
}
