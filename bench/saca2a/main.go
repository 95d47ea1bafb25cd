// Command saca2a repeats the experiment of torchtitan's pull request 1672 on one machine:
// what is it worth to save the results of a mixture of experts' all-to-alls, and of the
// copies of their split sizes to the host, for the backward pass?
//
//	go run ./bench/saca2a
//	go run ./bench/saca2a --links none,1GB/s,100MB/s --steps 10 --json
//
// The model has the layer shape of DeepSeek-V3 16B with all widths and the number of heads
// divided by --scale; the 64 experts of a layer, of which a token chooses 6, the 2 shared
// ones and the widths of a head are those of the original. There are one dense layer
// and --layers with experts, 2,048 token ids, and --tokens a rank and step, in float32. Four
// ranks share the experts; they are goroutines with a modelled link between them (package
// collective/local).
//
// With the build tag mpi and --backend mpi the ranks are processes instead, and the link is
// what MPI finds between them:
//
//	go build -tags mpi ./bench/saca2a
//	mpirun -n 4 ./saca2a --backend mpi
//
// Case "before" reruns the exchanges and the copies in backward
// (activation_checkpoint.rerun = ["all_to_all", "to_host"]), "after" is the selective policy
// as it is; "planned-before" and "planned-after" are what the planner makes of the memory that
// these two take, with the link's costs, and with the right to rerun exchanges; --cases also
// knows "full" and "none". On every link the cases take turns step
// by step, so that what disturbs one disturbs all; a row has the median over the steps,
// without the first. Bytes are those of all ranks together. The command fails unless
//
//   - loss and gradient norm are the same bits in every case, on every link, at every step;
//   - of "before" and "after" only the first reruns all-to-alls or waits for the host in backward;
//   - "after" saves as many bytes more than "before" as the formula in experiment.go says;
//   - an instrument that sees what kernels read and write, and no plan, finds the predicted
//     peaks, and the predicted difference in bytes carried over to backward (backend local).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lethe-go/lethe/bench/internal/command"
)

func main() { command.Main("saca2a", run) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("saca2a", flag.ContinueOnError)
	flags.SetOutput(log)
	x := experiment{ranks: 4}
	flags.IntVar(&x.scale, "scale", 8, "what all widths are divided by")
	flags.IntVar(&x.layers, "layers", 3, "layers with experts")
	flags.IntVar(&x.tokens, "tokens", 512, "tokens of a rank in a step")
	flags.IntVar(&x.steps, "steps", 7, "steps of each case on each link; the first is not timed")
	flags.IntVar(&x.threads, "threads", 0, "compute threads of all ranks; 0: one for every CPU")
	links := flags.String("links", "none,4GB/s,1GB/s,250MB/s,100MB/s,40MB/s", "bandwidths of the link of a rank; none: memory")
	latency := flags.Duration("latency", 20*time.Microsecond, "latency of a link")
	names := flags.String("cases", "before,after,planned-before,planned-after", "cases to compare with the first")
	backend := flags.String("backend", "local", `"local", or "mpi" under mpirun`)
	asJSON := flags.Bool("json", false, "print one JSON object per row")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if min(x.layers, x.tokens) < 1 || x.scale < 1 || x.scale > 64 || x.steps < 2 {
		return fmt.Errorf("--layers %d --tokens %d --scale %d --steps %d: want at least 1, 1, 1 to 64, and at least 2", x.layers, x.tokens, x.scale, x.steps)
	}
	var err error
	if x.cases, err = parseCases(*names); err != nil {
		return err
	}
	if x.links, err = parseLinks(*links, *latency); err != nil {
		return err
	}
	switch *backend {
	case "local":
	case "mpi":
		if err := x.join(ctx); err != nil {
			return err
		}
		defer x.world.Close()
		if x.world.Rank() > 0 {
			out, log = io.Discard, io.Discard
		}
	default:
		return fmt.Errorf("--backend %q: want local or mpi", *backend)
	}
	fmt.Fprintln(log, x.describe())
	if x.costs, err = os.MkdirTemp("", "saca2a"); err != nil {
		return err
	}
	defer os.RemoveAll(x.costs)
	if err := x.plan(ctx); err != nil {
		return err
	}
	if x.world == nil {
		verdict, err := x.verify(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintln(log, verdict)
	}
	rows, err := x.measure(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(log, strings.Join(x.claims(), "\n"))
	if !*asJSON {
		return printTable(out, x.cases, rows)
	}
	for _, r := range rows {
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	}
	return nil
}
