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
	"github.com/lethe-go/lethe/train"
)

// Row is a case on a disk.
type Row struct {
	Disk string `json:"disk"`
	// Bandwidth is that which the planner knows, in bytes a second.
	Bandwidth float64 `json:"bandwidth"`
	Case      string  `json:"case"`
	// BudgetBytes is what a step may hold, PeakBytes what it holds.
	BudgetBytes int64 `json:"budget_bytes"`
	PeakBytes   int64 `json:"peak_bytes"`
	// MovedBytes go to the disk in a step, and come back.
	MovedBytes int64 `json:"moved_bytes"`
	// PredictedSeconds and AddedSeconds are what a step takes longer than in case keep, as
	// predicted and as measured.
	PredictedSeconds float64 `json:"predicted_seconds"`
	AddedSeconds     float64 `json:"added_seconds"`
	// WaitedSeconds of a step passed in waits for the disk.
	WaitedSeconds float64 `json:"waited_seconds"`
	// Ratio is the time of a step to that in case rerun, Low and High its quartiles.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_low"`
	High  float64 `json:"ratio_high"`
	// Loss and GradNorm of the last step.
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
}

// runner is a case on a disk.
type runner struct {
	*turns.Runner
	row    Row
	moves  int64     // bytes in a step, as predicted
	waited []float64 // seconds of each step but the first
}

func (x experiment) measure(ctx context.Context) ([]Row, error) {
	var rows []Row
	reference := make(turns.Reference, x.steps)
	if err := x.verify(ctx, keep, disk{}); err != nil {
		return nil, fmt.Errorf("case %s: %w", keep.name, err)
	}
	for _, d := range x.disks {
		more, err := x.onDisk(ctx, d, reference)
		if err != nil {
			return nil, fmt.Errorf("disk %s: %w", d.name, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (x experiment) onDisk(ctx context.Context, d disk, reference turns.Reference) (rows []Row, err error) {
	comparison := turns.New(reference)
	defer func() { err = errors.Join(err, comparison.Close()) }()
	var runners []*runner
	for _, c := range append([]experimentCase{keep}, within...) {
		r, err := x.open(ctx, c, d, comparison)
		if err != nil {
			return nil, fmt.Errorf("case %s: %w", c.name, err)
		}
		runners = append(runners, r)
	}
	if err := comparison.Run(ctx); err != nil {
		return nil, err
	}
	base, others := runners[0], runners[1:]
	for _, r := range others {
		rows = append(rows, r.finish(base, others[0]))
	}
	return rows, nil
}

func (x experiment) open(ctx context.Context, c experimentCase, d disk, comparison *turns.Comparison) (*runner, error) {
	if c != keep {
		if err := x.verify(ctx, c, d); err != nil {
			return nil, err
		}
	}
	t, err := train.New(ctx, x.config(c, d), x.options(d))
	if err != nil {
		return nil, err
	}
	r := &runner{moves: t.Memory()[0].Offloaded,
		row: Row{Disk: d.name, Bandwidth: d.bandwidth, Case: c.name, BudgetBytes: x.budget, PeakBytes: t.PredictedBytes()}}
	r.Runner = comparison.Add(c.name, t, r.check)
	if c != keep && r.row.PeakBytes > x.budget {
		return nil, fmt.Errorf("%d bytes are held, the budget is %d: raise --budget, --batch or --tokens", r.row.PeakBytes, x.budget)
	}
	reruns, waits := t.AddedSeconds()
	r.row.PredictedSeconds = reruns + waits
	return r, nil
}

// check holds what a step moved against what is predicted.
func (r *runner) check(got train.StepResult, did train.Traffic) error {
	m := did.Machines
	if m.CopiedOut != r.moves || m.CopiedBack != r.moves {
		return fmt.Errorf("%d bytes went to the disk and %d came back, %d are predicted", m.CopiedOut, m.CopiedBack, r.moves)
	}
	if r.Steps() > 1 {
		r.waited = append(r.waited, m.ExposedCopies.Seconds())
	}
	r.row.Loss, r.row.GradNorm, r.row.MovedBytes = got.Loss, got.GradNorm, m.CopiedOut
	return nil
}

// finish sums up the steps.
func (r *runner) finish(base, other *runner) Row {
	var added []float64
	for i, s := range r.Seconds {
		added = append(added, s-base.Seconds[i])
	}
	r.row.AddedSeconds, r.row.WaitedSeconds = quantile.Median(added), quantile.Median(r.waited)
	r.row.Ratio, r.row.Low, r.row.High = r.RatioTo(other.Runner)
	return r.row
}

// claims that a measurement without an error has checked.
func (x experiment) claims() []string {
	return []string{
		fmt.Sprintf("loss and grad_norm: the same bits in all cases on all disks in each of %d steps", x.steps),
		"memory: peaks are measured as predicted, and within the budget in all cases but keep",
		"disk: as many bytes go out and come back as predicted",
	}
}

// printTable has a line for every case on every disk.
func printTable(out io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "disk\tMB/s\tcase\tpeak MB\tmoved MB\tpredicted s\tadded s\twaited s\t/ rerun\tquartiles\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%.1f\t%.1f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f–%.3f\t\n",
			r.Disk, r.Bandwidth/1e6, r.Case, float64(r.PeakBytes)/1e6, float64(r.MovedBytes)/1e6, r.PredictedSeconds, r.AddedSeconds, r.WaitedSeconds, r.Ratio, r.Low, r.High)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, name := range []string{"plan", "move"} {
		fmt.Fprintln(out, verdict(name, rows))
	}
	return nil
}

// verdict tells on which disks a case differs from case rerun by more than the noise.
func verdict(name string, rows []Row) string {
	var faster, even, slower []string
	for _, r := range rows {
		switch {
		case r.Case != name:
		case r.High < 1:
			faster = append(faster, r.Disk)
		case r.Low > 1:
			slower = append(slower, r.Disk)
		default:
			even = append(even, r.Disk)
		}
	}
	unused := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Case != name || r.MovedBytes > 0 })
	return fmt.Sprintf("%s against rerun, by the quartiles: faster on %q, even on %q, slower on %q; %d disks are left alone", name, faster, even, slower, len(unused))
}
