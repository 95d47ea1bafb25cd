// Command overlap measures how much of the communication of sharded parameters hides behind
// computation, on one machine with a modelled link.
//
//	go run ./bench/overlap
//	go run ./bench/overlap --shards 4 --links 1GB/s,200MB/s --json
//
// The ranks are goroutines with a link between them (package collective/local) on which
// gathering parameters and reducing gradients take time but no processor. Each row trains a
// few steps of a Llama with parallelism.data_parallel_shard_degree = --shards and reads their
// traces (profiling.enable_profiling):
//
//	communication  data was moving, from when the last rank had come
//	exposed        the part of it in which a compute lane waited for it
//	waited         a compute lane waited for another rank to come: the ranks share processors,
//	               so that one is ahead while another computes
//
// Lanes of collectives are goroutines: behind kernels on every processor of Go's scheduler they
// would wait for its next slice of time. --procs gives the scheduler more of them, and
// leaves it to the operating system to run lanes at once.
//
// Seconds are those of all ranks together in the step whose exposed share is the median;
// least_pct is that of the step that other work on the machine disturbed the least.
//
// Beside it stands what lethe plan --cluster predicts for the link, at the rate at which the
// compute lanes of the traced step really computed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/bench/internal/command"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/model/llama3"
)

func main() { command.Main("overlap", run) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("overlap", flag.ContinueOnError)
	flags.SetOutput(log)
	var x experiment
	flags.IntVar(&x.shards, "shards", 2, "ranks that divide the parameters")
	flags.IntVar(&x.dim, "dim", 256, "width of the residual stream, a multiple of 16")
	flags.IntVar(&x.layers, "layers", 8, "transformer blocks")
	flags.IntVar(&x.tokens, "tokens", 256, "tokens of a rank in a step")
	flags.IntVar(&x.threads, "threads", 0, "compute threads of all ranks; 0: one for every CPU")
	flags.IntVar(&x.steps, "steps", 10, "steps on each link; all but the first count")
	flags.StringVar(&x.reshard, "reshard", "always", "fsdp_reshard_after_forward")
	procs := flags.Int("procs", 4*runtime.NumCPU(), "processors of Go's scheduler")
	links := flags.String("links", "1GB/s,500MB/s,250MB/s,125MB/s", "bandwidths of the link of a rank")
	latency := flags.Duration("latency", 20*time.Microsecond, "latency of a link")
	asJSON := flags.Bool("json", false, "print one JSON object per row")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if x.shards < 2 || x.dim < 16 || x.dim%16 != 0 || min(x.layers, x.tokens, x.steps-1) < 1 {
		return fmt.Errorf("--shards %d --dim %d --layers %d --tokens %d --steps %d: want at least 2, a multiple of 16, 1, 1, 2", x.shards, x.dim, x.layers, x.tokens, x.steps)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(*procs))
	var rows []Row
	for name := range strings.SplitSeq(*links, ",") {
		bandwidth, err := local.ParseBandwidth(name)
		if err != nil {
			return fmt.Errorf("--links: %w", err)
		}
		row, err := x.measure(ctx, local.Link{Latency: *latency, Bandwidth: bandwidth})
		if err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
		row.Link = name
		rows = append(rows, row)
	}
	if *asJSON {
		e := json.NewEncoder(out)
		for _, r := range rows {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintln(out, x.describe())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "link\tstep_s\tcompute_s\tcommunication_s\texposed_s\twaited_s\texposed_pct\tleast_pct\tpredicted_pct\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%.1f\t%.1f\t%.1f\t\n", r.Link, r.StepSeconds, r.ComputeSeconds, r.CommunicationSeconds, r.ExposedSeconds, r.WaitedSeconds, r.ExposedPct, r.LeastPct, r.PredictedPct)
	}
	return w.Flush()
}

// experiment is a model on some ranks.
type experiment struct {
	shards, dim, layers, tokens, threads, steps int
	reshard                                     string
}

const vocabulary = 257 // bytes, and the end of a document

func (x experiment) shape() llama3.Config {
	return llama3.Config{Dim: x.dim, Layers: x.layers, Heads: x.dim / 16, KVHeads: x.dim / 16, HeadDim: 16, Hidden: 3 * x.dim, Vocab: vocabulary,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}}
}

func (x experiment) describe() string {
	return fmt.Sprintf("Llama of dim %d, %d layers, %d parameters; %d ranks of %d tokens, float32, fsdp_reshard_after_forward %q",
		x.dim, x.layers, x.shape().Parameters(), x.shards, x.tokens, x.reshard)
}
