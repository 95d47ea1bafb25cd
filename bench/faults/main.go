//go:build linux

// Command faults does to training what no gate of tests can. It builds lethe for Open MPI,
// trains a small model on processes under mpirun, does harm to one of them, and holds against the
// flight records that every other one has stopped within the deadline and says which rank
// was to blame.
//
//	go run ./bench/faults             all experiments
//	go run ./bench/faults stop        some of them
//
// The experiments:
//
//	stop   rank 1 of 4 gets SIGSTOP: it is there and says nothing.
//	cut    Two ranks live in network namespaces of their own, with an address, a host name
//	       and process ids each, as on two machines. The link between them goes down.
//	kill   In two such namespaces rank 1 gets SIGKILL: rank 0 cannot see that, and mpirun ends
//	       it a second later.
//
// The last two need root, and ip and unshare. What cannot be run is said and counts as no
// failure. Exit code 1 if a rank did not stop, or named no one.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lethe-go/lethe/bench/internal/command"
)

func main() { command.Main("faults", run) }

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.SetOutput(log)
	timeout := flags.Duration("timeout", 3*time.Second, "comm.train_timeout")
	config := flags.String("config", "configs/deepseek_v3_debug.toml", "`file` of the run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "faults")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	b := bench{lethe: filepath.Join(folder, "lethe"), config: *config, folder: folder, timeout: *timeout, out: out}
	build := exec.CommandContext(ctx, "go", "build", "-tags", "mpi", "-o", b.lethe, "github.com/lethe-go/lethe/cmd/lethe")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build -tags mpi: %w: %s", err, text)
	}
	var failed []string
	for _, x := range chosen {
		if ok, err := b.run(ctx, x); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		} else if !ok {
			failed = append(failed, x.name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not as wanted: %s", strings.Join(failed, ", "))
	}
	return nil
}

// choose returns the experiments of these names, all if there are none.
func choose(names []string) (chosen []experiment, err error) {
	if len(names) == 0 {
		return experiments, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(experiments, func(x experiment) bool { return x.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no experiment %q: want stop, cut or kill", name)
		}
		chosen = append(chosen, experiments[i])
	}
	return chosen, nil
}
