package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/train"
)

var planCommand = command{
	name:  "plan",
	usage: "--config FILE [--json | --html FILE | --explain NAME | --measure] [--cluster SPEC] [--section.key=value …]",
	about: "compare memory and recomputation of every mode, without running a step",
	details: `Builds and compiles the Programs of the config under each activation
checkpointing mode. Nothing is allocated, so the model may be of any size.

  saved_bytes       carried over from forward to backward of one microbatch
  peak_bytes        most bytes alive in the arena at one time
  arena_bytes       size of the arena: the peak and what placement loses
  recomputed_flops  operations that run a second time in one optimizer step
  recomputed_pct    their share of the forward passes, in percent

--json prints one JSON object a row with these keys. --explain NAME tells what
becomes of each forward value whose fully qualified name the pattern matches under
the config's own mode, and who decided it; --explain "*" tells it of all.

--html FILE writes one page that needs no network: the modes, the memory over the steps
of the schedule, what holds the peak, and who decided about the values of each layer.

--measure runs two steps in each mode on a device that records which bytes kernels
touch, and holds the peak it saw against the predicted one, for every Program; then a
third in which every dead byte is NaN.

--cluster SPEC plans for ranks that need not be there, as many as parallelism says: what
each holds, sends and takes for a step, and what fits. SPEC is what a rank has, such as
memory=80GiB,flops=400T,memory_bandwidth=3TB,link=50GB,latency=10us: operations, bytes of
memory and bytes of the link are per second; what is left out has no limit. It goes with
--json.

Examples:
  lethe plan --config configs/llama3_debug.toml
  lethe plan --config configs/llama3_debug.toml --explain layers.0.attention
  lethe plan --config configs/llama3_debug.toml --model.flavor=8B --training.seq_len=8192 --json
  lethe plan --config configs/llama3_debug.toml --model.flavor=8B --parallelism.data_parallel_shard_degree=64 --cluster memory=80GiB
`,
	run: runPlan,
}

func runPlan(ctx context.Context, args []string, s streams) (int, error) {
	a, err := parseConfigArgs(args, []string{"json", "measure"}, []string{"explain", "html", "cluster"})
	if err != nil {
		return 0, err
	}
	name, explain := a.flags["explain"]
	_, asJSON := a.flags["json"]
	_, measure := a.flags["measure"]
	_, html := a.flags["html"]
	cluster, ofCluster := a.flags["cluster"]
	if len(a.flags) > 1 && !(ofCluster && asJSON && len(a.flags) == 2) {
		return 0, usagef("--json, --html, --explain and --measure cannot be used together, and --cluster with --json alone")
	}
	c, err := a.load()
	if err != nil {
		return 0, err
	}
	if ofCluster {
		return exitDone, planCluster(s.out, c, cluster, asJSON)
	}
	if measure {
		return measurePlan(ctx, s.out, c)
	}
	r, err := train.PlanReportFor(c, train.Options{})
	if err != nil {
		return 0, err
	}
	switch {
	case html:
		return exitDone, atomicfile.Write(atomicfile.OS, a.flags["html"], func(w io.Writer) error { return r.WriteHTML(w, c) })
	case asJSON:
		return exitDone, printJSON(s.out, r)
	case explain:
		return exitDone, printExplanation(s.out, r, name)
	}
	return exitDone, printTable(s.out, r, c)
}

func printJSON(out io.Writer, r *train.PlanReport) error {
	e := json.NewEncoder(out)
	for _, row := range r.Rows {
		if err := e.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

func printExplanation(out io.Writer, r *train.PlanReport, name string) error {
	report := r.Explanation.Filter(name)
	if len(report.Lines) == 0 {
		return usagef("--explain %q matches no value of the forward graph: write scopes and kinds joined by dots, such as layers.0.attention or layers.*.feed_forward.matmul", name)
	}
	_, err := fmt.Fprint(out, report)
	return err
}

func printTable(out io.Writer, r *train.PlanReport, c train.Config) error {
	fmt.Fprintf(out, "%s, %d parameters, %s; %d × %d tokens in %d microbatches a step\n", r.Model.Name(), r.Model.Parameters(), c.Training.DType,
		c.Training.LocalBatchSize*c.Training.Microbatches(), c.Training.SeqLen, c.Training.Microbatches())
	fmt.Fprintf(out, "%d bytes are persistent in every mode: parameters, gradients, optimizer state, tables\n", r.PersistentBytes)
	if r.StateCopyBytes > 0 {
		fmt.Fprintf(out, "%d bytes hold the copy of the state while it is written (state.async_mode)\n", r.StateCopyBytes)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\tsaved_bytes\tpeak_bytes\tarena_bytes\trecomputed_flops\trecomputed_pct\t")
	for _, row := range r.Rows {
		mark := ""
		if row.Mode == c.ActivationCheckpoint.Mode {
			mark = "*"
		}
		fmt.Fprintf(w, "%s%s\t%d\t%d\t%d\t%.4g\t%.2f\t\n", mark, row.Mode, row.SavedBytes, row.PeakBytes, row.ArenaBytes, row.RecomputedFLOPs, row.RecomputedPct)
	}
	w.Flush()
	_, err := fmt.Fprintln(out, "\n* is the mode of this config")
	return err
}

// measurePlan prints predicted and measured peaks. It fails if one is not the other.
func measurePlan(ctx context.Context, out io.Writer, c train.Config) (int, error) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\trank\tprogram\tpredicted_bytes\tmeasured_bytes\tpoisoned\t")
	code := exitDone
	for _, mode := range []string{"none", "selective", "full"} {
		all, err := train.MeasurePeaks(ctx, c, mode, train.Options{})
		if err != nil {
			return 0, err
		}
		for _, m := range all {
			verdict := "same loss"
			if !m.SameLoss {
				verdict = "ANOTHER LOSS"
			}
			if !m.SameLoss || m.Predicted != m.Peak {
				code = exitFailed
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%s\t\n", m.Mode, m.Rank, m.Program, m.Predicted, m.Peak, verdict)
		}
	}
	return code, w.Flush()
}
