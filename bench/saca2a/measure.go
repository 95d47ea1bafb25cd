package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/lethe-go/lethe/bench/internal/quantile"
	"github.com/lethe-go/lethe/bench/internal/turns"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/train"
)

// Row is a case on a link.
type Row struct {
	Case string `json:"case"`
	Link string `json:"link"`
	// TPS is tokens a second of all ranks, and Ratio that to the case Against, step by step:
	// the first, or for what is planned within a budget the fastest other one that fits.
	TPS     float64 `json:"tps"`
	Against string  `json:"against"`
	Ratio   float64 `json:"ratio"`
	// Low and High are the quartiles of the ratio.
	Low  float64 `json:"ratio_low"`
	High float64 `json:"ratio_high"`
	// Loss and GradNorm of the last step.
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
	// SavedBytes are carried from forward to backward of the last step, PeakBytes the most
	// alive at one time, summed over the ranks.
	SavedBytes int64 `json:"saved_bytes"`
	PeakBytes  int64 `json:"peak_bytes"`
	// All-to-alls of a rank behind the forward pass of a step, those that were rerun, and
	// host syncs.
	BackwardAllToAll  int64 `json:"backward_all_to_all"`
	RerunAllToAll     int64 `json:"rerun_all_to_all"`
	BackwardHostSyncs int64 `json:"backward_host_syncs"`
	// ExposedSeconds of a step passed while the first rank waited for communication.
	ExposedSeconds float64 `json:"exposed_seconds"`
}

// runner is a case on a link.
type runner struct {
	*turns.Runner
	experimentCase
	row     Row
	exposed []float64 // seconds of each step
}

func (x experiment) measure(ctx context.Context) ([]Row, error) {
	var rows []Row
	reference := make(turns.Reference, x.steps)
	for _, l := range x.links {
		more, err := x.onLink(ctx, l, reference)
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", l.name, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (x experiment) onLink(ctx context.Context, l link, reference turns.Reference) (rows []Row, err error) {
	comparison := turns.New(reference)
	defer func() { err = errors.Join(err, comparison.Close()) }()
	var runners []*runner
	for _, c := range x.cases {
		t, err := train.New(ctx, x.config(c), x.options(l.Link))
		if err != nil {
			return nil, err
		}
		r := &runner{experimentCase: c, row: Row{Case: c.name, Link: l.name}}
		r.Runner = comparison.Add(c.name, t, r.check)
		runners = append(runners, r)
	}
	if err := comparison.Run(ctx); err != nil {
		return nil, err
	}
	var before, after *runner
	for _, r := range runners {
		if err := r.finish(ctx, x, against(r, runners, x.budgets[r.within])); err != nil {
			return nil, err
		}
		rows = append(rows, r.row)
		switch r.name {
		case "before":
			before = r
		case "after":
			after = r
		}
	}
	if before != nil && after != nil {
		if got := after.row.SavedBytes - before.row.SavedBytes; got != x.predicted() {
			return nil, fmt.Errorf("after saves %d bytes more than before, %d are predicted", got, x.predicted())
		}
	}
	return rows, nil
}

// check counts what backward exchanged again.
func (r *runner) check(got train.StepResult, did train.Traffic) error {
	r.exposed = append(r.exposed, did.Machines.Exposed.Seconds())
	row := &r.row
	row.Loss, row.GradNorm = got.Loss, got.GradNorm
	row.RerunAllToAll = did.Collectives[graph.RerunPass][collective.KindAllToAll].Calls
	row.BackwardAllToAll = row.RerunAllToAll + did.Collectives[graph.BackwardPass][collective.KindAllToAll].Calls
	row.BackwardHostSyncs = did.Machines.HostSyncs[graph.RerunPass] + did.Machines.HostSyncs[graph.BackwardPass]
	if again := row.RerunAllToAll+row.BackwardHostSyncs > 0; r.repeats(again) != again {
		return fmt.Errorf("%d all-to-alls are rerun and the host waits %d times in backward", row.RerunAllToAll, row.BackwardHostSyncs)
	}
	return nil
}

// against is what a case is compared with.
func against(r *runner, all []*runner, budget int64) *runner {
	fastest := all[0]
	if r.within == "" {
		return fastest
	}
	fastest = nil
	for _, c := range all {
		if c.within == "" && c.PredictedBytes() <= budget && (fastest == nil || quantile.Median(c.Seconds) < quantile.Median(fastest.Seconds)) {
			fastest = c
		}
	}
	if fastest == nil {
		return all[0] // the case whose memory is the budget does not run
	}
	return fastest
}

// finish sums up the steps.
func (r *runner) finish(ctx context.Context, x experiment, other *runner) error {
	r.row.Against = other.name
	r.row.TPS = float64(x.ranks*x.tokens) / quantile.Median(r.Seconds)
	r.row.Ratio, r.row.Low, r.row.High = other.RatioTo(r.Runner)
	r.row.ExposedSeconds = quantile.Median(r.exposed)
	for _, m := range r.Memory() {
		r.row.SavedBytes += m.Saved
		r.row.PeakBytes += m.Peak
	}
	return x.sum(ctx, &r.row.SavedBytes, &r.row.PeakBytes)
}

// claims that a measurement without an error has checked.
func (x experiment) claims() []string {
	return []string{
		fmt.Sprintf("loss and grad_norm: the same bits in all cases on all links in each of %d steps", x.steps),
		fmt.Sprintf("backward: case after, unlike before, reruns no all-to-alls and does not wait for the host; it saves %d bytes more, as predicted", x.predicted()),
	}
}

// printTable has a line for every link.
func printTable(out io.Writer, cases []experimentCase, rows []Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "link\t")
	for i, c := range cases {
		fmt.Fprintf(w, "%s tokens/s\texposed s\t", c.name)
		if i > 0 {
			fmt.Fprintf(w, "/ %s\tquartiles\t", comparison(cases, i))
		}
	}
	fmt.Fprintln(w)
	for line := range slices.Chunk(rows, len(cases)) {
		fmt.Fprintf(w, "%s\t", line[0].Link)
		for i, r := range line {
			fmt.Fprintf(w, "%.0f\t%.3f\t", r.TPS, r.ExposedSeconds)
			if i > 0 {
				fmt.Fprintf(w, "%.3f\t%.3f–%.3f\t", r.Ratio, r.Low, r.High)
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i, c := range cases {
		r := rows[i]
		fmt.Fprintf(out, "%s: %d bytes saved, peak %d; a rank's backward has %d all-to-alls, %d of them rerun, and %d host syncs\n",
			c.name, r.SavedBytes, r.PeakBytes, r.BackwardAllToAll, r.RerunAllToAll, r.BackwardHostSyncs)
		if i > 0 {
			fmt.Fprintln(out, crossover(comparison(cases, i), c.name, rows, i, len(cases)))
		}
	}
	return nil
}

// comparison names what case i is held against.
func comparison(cases []experimentCase, i int) string {
	if cases[i].within != "" {
		return "fastest fitting"
	}
	return cases[0].name
}

// crossover tells on which links a case is ahead of another by more than the noise.
func crossover(other, name string, rows []Row, i, cases int) string {
	var ahead, even, behind []string
	for line := range slices.Chunk(rows, cases) {
		switch r := line[i]; {
		case r.Low > 1:
			ahead = append(ahead, r.Link)
		case r.High < 1:
			behind = append(behind, r.Link)
		default:
			even = append(even, r.Link)
		}
	}
	return fmt.Sprintf("%s against %s, by the quartiles: ahead on %v, even on %v, behind on %v", name, other, ahead, even, behind)
}
