package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/train"
)

var planCommand = command{
	name:  "plan",
	usage: "--config FILE [--costs FILE] [--json | --html FILE | --explain NAME | --measure] [--cluster SPEC] [--section.key=value …]",
	about: "compare memory and recomputation of every mode and of budgets, without running a step",
	details: `Builds and compiles the Programs of the config under each activation
checkpointing mode. Nothing is allocated, so the model may be of any size.

  saved       carried over from forward to backward of one microbatch
  peak        most bytes alive in the arena at one time
  arena       size of the arena: the peak and what placement loses
  total       the peak and what is held beside the arena in every mode
  recomputed  what runs a second time in one optimizer step, and its share of the forward
              passes: in operations, and in time by the costs of operations
  budget      what the total may be at most
  bound       of forward time, what no plan within the budget undercuts that reruns
              operations once, right before backward first needs them
  gap         what the plan takes beyond that

The budgets lie 75, 50, 25, 10 and 0 percent of the way from the smallest plan to none;
activation_checkpoint.mode="budget" adds the config's own. Costs of operations are those
that a run in that mode has measured on this machine, in its table in the user's folder of
caches, or of --costs FILE, such a table from anywhere; where there is neither, estimates.
The same table gives the same plans on every machine.

--json prints one JSON object a row, with the keys mode, saved_bytes, peak_bytes,
arena_bytes, total_bytes, recomputed_flops, recomputed_pct, recomputed_seconds,
recomputed_time_pct, for budgets budget_bytes, bound_pct and gap_pct, and where values
wait in a file offloaded_bytes and offload_wait_seconds. --explain NAME tells what becomes
of each forward value whose fully qualified name the pattern matches under the config's
own mode, and who decided it; --explain "*" tells it of all.

--html FILE writes one page that needs no network: the modes, the memory over the steps
of the schedule, what holds the peak, and who decided about the values of each layer.

--measure runs two steps in each mode on a device that records which bytes kernels
touch, and holds the peak it saw against the predicted one, for every Program; then a
third in which every dead byte is NaN.

--cluster SPEC plans for ranks that need not be there, as many as parallelism says: what
each holds, sends and takes for a step, and what fits. SPEC is what a rank has, such as
memory=80GiB,flops=400T,memory_bandwidth=3TB,link=50GB,latency=10us: operations, bytes of
memory and bytes of the link are per second; what is left out has no limit. With
host_memory=128GiB the copy of the state, while it is written, is there and not in memory.
Tokens are spread evenly over the experts; peak_bound is the peak if those of one rank get
all. If the config's mode is "budget", the planner decides within that memory. It goes with
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
	a, err := parseConfigArgs(args, []string{"json", "measure"}, []string{"explain", "html", "cluster", "costs"})
	if err != nil {
		return 0, err
	}
	costs, given := a.flags["costs"]
	delete(a.flags, "costs")
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
	if ofCluster && given {
		return 0, usagef("--costs are of a machine that is there: with --cluster give its rates, such as flops=400T")
	}
	if ofCluster {
		return exitDone, planCluster(s.out, c, cluster, asJSON)
	}
	var o train.Options
	if given {
		if o.Costs, err = train.LoadCosts(costs); err != nil {
			return 0, &train.ConfigError{Err: err}
		}
	}
	if measure {
		return measurePlan(ctx, s.out, c, o)
	}
	r, err := train.PlanReportFor(c, o)
	if err != nil {
		return 0, err
	}
	switch {
	case html:
		return exitDone, atomicfile.Write(atomicfile.OS, a.flags["html"], func(w io.Writer) error { return r.WriteHTML(w, c) })
	case asJSON:
		return exitDone, printJSON(s.out, r.Rows)
	case explain:
		return exitDone, printExplanation(s.out, r, name)
	}
	return exitDone, printTable(s.out, r, c)
}

// printJSON writes one object a line.
func printJSON[Row any](out io.Writer, rows []Row) error {
	e := json.NewEncoder(out)
	for _, row := range rows {
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
	fmt.Fprintf(out, "%d bytes are persistent in every mode: parameters, optimizer state, tables\n", r.PersistentBytes)
	if r.StateCopyBytes > 0 {
		fmt.Fprintf(out, "%d bytes hold the copy of the state while it is written (state.async_mode)\n", r.StateCopyBytes)
	}
	fmt.Fprintf(out, "costs of operations: %s\n\n", r.Costs)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\tbudget\tsaved\tpeak\tarena\ttotal\trecomputed\tof\trecomputed\tof\tbound\tgap\t")
	fmt.Fprintln(w, "\tbytes\tbytes\tbytes\tbytes\tbytes\tFLOPs\tforward\tseconds\tforward\t\t\t")
	for i, row := range r.Rows {
		mark, budget, bound := "", "", "\t"
		if i == r.Own {
			mark = "*"
		}
		if w := row.Within; w != nil {
			budget, bound = fmt.Sprint(w.BudgetBytes), fmt.Sprintf("%.2f%%\t%.2f%%", w.BoundPct, w.GapPct)
		}
		fmt.Fprintf(w, "%s%s\t%s\t%d\t%d\t%d\t%d\t%.4g\t%.2f%%\t%.4g\t%.2f%%\t%s\t\n", mark, row.Mode, budget, row.SavedBytes, row.PeakBytes, row.ArenaBytes, row.TotalBytes,
			row.RecomputedFLOPs, row.RecomputedPct, row.RecomputedSeconds, row.RecomputedTimePct, bound)
	}
	w.Flush()
	for _, row := range r.Rows {
		if row.OffloadedBytes > 0 {
			fmt.Fprintf(out, "%s, %d bytes in all: %d bytes of a microbatch wait in a file, and %.4g seconds of a step for copies\n", row.Mode, row.TotalBytes, row.OffloadedBytes, row.OffloadWaitSeconds)
		}
	}
	_, err := fmt.Fprintln(out, "\n* is the mode of this config")
	return err
}

// measurePlan prints predicted and measured peaks. It fails if one is not the other.
func measurePlan(ctx context.Context, out io.Writer, c train.Config, o train.Options) (int, error) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\trank\tprogram\tpredicted_bytes\tmeasured_bytes\tpoisoned\t")
	code := exitDone
	modes := []string{"none", "selective", "full"}
	if own := c.ActivationCheckpoint.Mode; !slices.Contains(modes, own) {
		modes = append(modes, own)
	}
	for _, mode := range modes {
		all, err := train.MeasurePeaks(ctx, c, mode, o)
		if err != nil {
			return 0, err
		}
		for _, m := range all {
			verdict := "same loss"
			if !m.SameLoss {
				verdict = "ANOTHER LOSS"
			}
			if m.Differs != "" {
				verdict = "DIFFERS AT " + m.Differs
			}
			if !m.SameLoss || m.Differs != "" {
				code = exitFailed
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%s\t\n", m.Mode, m.Rank, m.Program, m.Predicted, m.Peak, verdict)
		}
	}
	return code, w.Flush()
}
