package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/train"
)

// planCluster prints what a config takes of each rank of a cluster.
func planCluster(out io.Writer, c train.Config, text string, asJSON bool) error {
	cluster, err := parseCluster(text)
	if err != nil {
		return usagef("--cluster: %v", err)
	}
	p, err := train.PlanForCluster(c, train.Options{}, cluster)
	if err != nil {
		return err
	}
	if !asJSON {
		return printCluster(out, p, cluster, c)
	}
	return printJSON(out, p.Rows)
}

func printCluster(out io.Writer, p *train.ClusterPlan, cluster train.Cluster, c train.Config) error {
	r := p.Rows[0]
	fmt.Fprintf(out, "%s, %d parameters, %s; %d ranks: data_parallel_replicate_degree %d, data_parallel_shard_degree %d, expert_parallel_degree %d, tensor_parallel_degree %d\n",
		p.Model.Name(), p.Model.Parameters(), c.Training.DType, p.Ranks, r.DataParallelReplicateDegree, r.DataParallelShardDegree, r.ExpertParallelDegree, r.TensorParallelDegree)
	fmt.Fprintf(out, "%d × %d tokens of a rank, or of those that compute together, in %d microbatches a step\n", c.Training.LocalBatchSize*c.Training.Microbatches(), c.Training.SeqLen, c.Training.Microbatches())
	fmt.Fprintf(out, "a rank holds %s of parameters, %s of gradients (in the peak), %s of optimizer state, %s of other state", gib(r.ParameterBytes), gib(r.GradientBytes), gib(r.OptimizerBytes), gib(r.OtherBytes))
	fmt.Fprintf(out, "; %d bytes of a replica are padding\n", r.PaddingBytes)
	if host := r.StateCopyBytes + r.OffloadBufferBytes; host > 0 {
		where := "and"
		if cluster.HostMemory > 0 {
			where = "its host holds"
		}
		fmt.Fprintf(out, "%s %s to copy the state while it is written, %s of buffers to offload\n", where, gib(r.StateCopyBytes), gib(r.OffloadBufferBytes))
	}
	fmt.Fprintln(out)

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\tsaved\tpeak\tpeak_bound\ttotal\tfits\tcompute_s\tcommunication_s\texposed_s\tstep_s\ttps\t")
	for _, row := range p.Rows {
		fits := "no"
		if row.Fits {
			fits = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.4g\t%.4g\t%.4g\t%.4g\t%.4g\t\n", row.Mode, gib(row.SavedBytes), gib(row.PeakBytes), gib(row.PeakBoundBytes), gib(row.TotalBytes),
			fits, row.ComputeSeconds, row.CommunicationSeconds, row.ExposedSeconds, row.StepSeconds, row.TPS)
	}
	w.Flush()

	fmt.Fprintln(out, "\nbytes that a rank sends in a step, by kind:")
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\tkind\tcalls\tforward\trerun\tbackward\tupdate\t")
	for _, row := range p.Rows {
		for _, kind := range slices.Sorted(maps.Keys(row.Collectives)) {
			n := row.Collectives[kind]
			calls := int64(0)
			for _, pass := range []flight.Count{n.Forward, n.Rerun, n.Backward, n.Update} {
				calls += pass.Calls
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t\n", row.Mode, kind, calls, n.Forward.Sent, n.Rerun.Sent, n.Backward.Sent, n.Update.Sent)
		}
	}
	w.Flush()
	_, err := fmt.Fprintf(out, "\n%s\n", verdict(p, cluster))
	return err
}

// verdict says what fits.
func verdict(p *train.ClusterPlan, cluster train.Cluster) string {
	if cluster.Memory == 0 {
		return "nothing is said about the memory of a rank: --cluster memory=80GiB"
	}
	var fits, not []string
	for _, row := range p.Rows {
		if left := cluster.Memory - row.TotalBytes; left >= 0 {
			fits = append(fits, fmt.Sprintf("%s with %s to spare", row.Mode, gib(left)))
		} else {
			not = append(not, fmt.Sprintf("%s by %s", row.Mode, gib(-left)))
		}
	}
	text := fmt.Sprintf("in %s a rank there fit: ", gib(cluster.Memory))
	if fits == nil {
		text += "none"
	}
	text += strings.Join(fits, ", ")
	if not != nil {
		text += "; too large are: " + strings.Join(not, ", ")
	}
	if p.Infeasible != nil {
		text += fmt.Sprintf("; mode budget finds no plan, the smallest takes %s", gib(p.Infeasible.SmallestBytes))
	}
	if host := p.Rows[0].StateCopyBytes + p.Rows[0].OffloadBufferBytes; cluster.HostMemory > 0 && host > cluster.HostMemory {
		text += fmt.Sprintf("; the host's %s are too few for %s: set state.async_mode=\"disabled\"", gib(cluster.HostMemory), gib(host))
	}
	return text
}

func gib(n int64) string { return fmt.Sprintf("%.3fGiB", float64(n)/(1<<30)) }
