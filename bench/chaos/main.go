// Command chaos kills a training run at random until it is done, and compares what comes
// out with a run that nobody disturbed, bit for bit.
//
//	go run ./bench/chaos --config configs/quickstart.toml --steps 1000
//
// It builds lethe, trains once in peace, and then a second time while sending SIGKILL and
// SIGTERM in turns, each after a random time of life between --from and --to, and
// restarting the run until it exits with 0. Losses and gradient norms of every step and
// all tensors of the last state are compared. Exit code 0 if they are equal, 1 if not or
// if a run failed. Arguments behind the flags go to lethe train: --section.key=value.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/lethe-go/lethe/bench/internal/command"
)

func main() { command.Main("chaos", run) }

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	c := chaos{out: out}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.StringVar(&c.config, "config", "configs/quickstart.toml", "`file` of the run")
	flags.IntVar(&c.steps, "steps", 1000, "optimizer steps of the run")
	flags.IntVar(&c.interval, "interval", 20, "steps between two states")
	flags.DurationVar(&c.from, "from", 20*time.Second, "shortest life of a process")
	flags.DurationVar(&c.to, "to", 60*time.Second, "longest life of a process")
	flags.Uint64Var(&c.seed, "seed", 1, "of the times")
	flags.StringVar(&c.folder, "folder", "", "new or empty `folder` for both runs; without it a temporary one, which is removed if all is equal")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.overrides = flags.Args()
	temporary := c.folder == ""
	if temporary {
		if c.folder, err = os.MkdirTemp("", "chaos"); err != nil {
			return err
		}
	} else if entries, err := os.ReadDir(c.folder); err == nil && len(entries) > 0 {
		return fmt.Errorf("--folder %s: it is not empty: a run would go on from what is there; give another", c.folder)
	}
	c.lethe = filepath.Join(c.folder, "lethe")
	build := exec.CommandContext(ctx, "go", "build", "-o", c.lethe, "github.com/lethe-go/lethe/cmd/lethe")
	build.Stderr = log
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	equal, err := c.run(ctx)
	if err == nil && !equal {
		err = errors.New("the runs differ")
	}
	if err == nil && temporary {
		return os.RemoveAll(c.folder)
	}
	fmt.Fprintf(log, "the runs and their output are in %s\n", c.folder)
	return err
}
