// Command offload measures where it pays to let values wait on a disk from forward to
// backward, and whether the planner knows: a sweep of disk speeds within one memory budget.
//
//	go run ./bench/offload
//	go run ./bench/offload --disks 100MB/s,1GB/s --budget 0.5 --steps 5 --json
//
// The budget lies --budget of the way from the smallest plan without a disk to the one that
// keeps everything. On each disk four cases train the same Llama in turns, step by step, so
// that what disturbs one disturbs all:
//
//	keep    keeps everything, in more memory than the budget: what the others are
//	        reckoned from
//	rerun   the planner without a disk
//	plan    the planner with the disk, which it knows by its bandwidth
//	move    everything that may goes to the disk, and nothing is computed again
//
// A disk of so many bytes a second is memory of this process behind spill.Limit; the one
// called "real" is that of --dir. The planner gets the bandwidth at which values go through
// the ring of buffers to it and back, which is measured first. Copies run on goroutines:
// behind kernels on every processor of Go's scheduler they would wait for its next slice of
// time. --procs gives the scheduler more of them, and leaves it to the operating system to
// run copies at once.
//
// A row has the seconds
// that a step takes longer than in case keep, as predicted and as measured (the median), the
// ratio of its time to that of case rerun, step by step, with quartiles, and the bytes moved
// out in a step. The first step does not count. The command fails unless
//
//   - loss and gradient norm are the same bits in every case, on every disk, at every step;
//   - an instrument that sees what kernels read and write, and no plan, finds the predicted
//     peaks, which are within the budget in all cases but keep;
//   - as many bytes are moved, out and back, as is predicted.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/lethe-go/lethe/bench/internal/command"
)

func main() { command.Main("offload", run) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("offload", flag.ContinueOnError)
	flags.SetOutput(log)
	var x experiment
	flags.IntVar(&x.dim, "dim", 256, "width of the residual stream, a multiple of 16")
	flags.IntVar(&x.layers, "layers", 8, "transformer blocks")
	flags.IntVar(&x.tokens, "tokens", 256, "tokens of a sequence")
	flags.IntVar(&x.batch, "batch", 8, "sequences of a step")
	flags.IntVar(&x.steps, "steps", 8, "steps of each case on each disk; the first is not timed")
	flags.IntVar(&x.threads, "threads", runtime.NumCPU(), "compute threads")
	procs := flags.Int("procs", 4*runtime.NumCPU(), "processors of Go's scheduler")
	flags.Float64Var(&x.share, "budget", 0.25, "part of what keeping everything takes more than the least")
	flags.StringVar(&x.dir, "dir", "", "folder on the real disk; empty: that of temporary files")
	names := flags.String("disks", "50MB/s,100MB/s,200MB/s,500MB/s,1GB/s,2GB/s,4GB/s,real", "bandwidths of disks")
	asJSON := flags.Bool("json", false, "print one JSON object per row")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if x.dim < 16 || x.dim%16 != 0 || min(x.layers, x.tokens, x.batch, x.steps-1) < 1 || !(x.share >= 0 && x.share <= 1) {
		return fmt.Errorf("--dim %d --layers %d --tokens %d --batch %d --steps %d --budget %g: want a multiple of 16, 1, 1, 1, 2 at least, and 0 to 1",
			x.dim, x.layers, x.tokens, x.batch, x.steps, x.share)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(*procs))
	var err error
	if x.disks, err = parseDisks(*names); err != nil {
		return err
	}
	if x.folder, err = os.MkdirTemp(x.dir, "offload"); err != nil {
		return err
	}
	defer os.RemoveAll(x.folder)
	if err := x.prepare(ctx); err != nil {
		return err
	}
	fmt.Fprintln(log, x.describe())
	rows, err := x.measure(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(log, strings.Join(x.claims(), "\n"))
	if !*asJSON {
		return printTable(out, rows)
	}
	for _, r := range rows {
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	}
	return nil
}
