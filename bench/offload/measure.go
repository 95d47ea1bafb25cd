package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/lethe-go/lethe/bench/internal/quantile"
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
	*train.Trainer
	row             Row
	moves           int64 // bytes in a step, as predicted
	seconds, waited []float64
}

func (x experiment) measure(ctx context.Context) ([]Row, error) {
	var rows []Row
	reference := make([]train.StepResult, x.steps)
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

// onDisk makes the steps of all cases, in turns.
func (x experiment) onDisk(ctx context.Context, d disk, reference []train.StepResult) (rows []Row, err error) {
	var runners []*runner
	defer func() {
		for _, r := range runners {
			err = errors.Join(err, r.Close())
		}
	}()
	for _, c := range append([]experimentCase{keep}, within...) {
		r, err := x.open(ctx, c, d)
		if err != nil {
			return nil, fmt.Errorf("case %s: %w", c.name, err)
		}
		runners = append(runners, r)
	}
	for i := range reference {
		for _, r := range runners {
			if err := r.step(ctx, &reference[i]); err != nil {
				return nil, fmt.Errorf("case %s, step %d: %w", r.row.Case, i+1, err)
			}
		}
	}
	base, others := runners[0], runners[1:]
	for _, r := range others {
		rows = append(rows, r.finish(base, others[0]))
	}
	return rows, nil
}

func (x experiment) open(ctx context.Context, c experimentCase, d disk) (*runner, error) {
	if c != keep {
		if err := x.verify(ctx, c, d); err != nil {
			return nil, err
		}
	}
	t, err := train.New(ctx, x.config(c, d), x.options(d))
	if err != nil {
		return nil, err
	}
	r := &runner{Trainer: t, moves: t.Memory()[0].Offloaded,
		row: Row{Disk: d.name, Bandwidth: d.bandwidth, Case: c.name, BudgetBytes: x.budget, PeakBytes: t.PredictedBytes()}}
	if c != keep && r.row.PeakBytes > x.budget {
		return nil, errors.Join(fmt.Errorf("%d bytes are held, the budget is %d: raise --budget, --batch or --tokens", r.row.PeakBytes, x.budget), t.Close())
	}
	reruns, waits := t.AddedSeconds()
	r.row.PredictedSeconds = reruns + waits
	return r, nil
}

// step makes one and holds it against the reference, which the first case on the first disk
// sets.
func (r *runner) step(ctx context.Context, reference *train.StepResult) error {
	before, begin := r.Traffic().Machines, time.Now()
	got, err := r.Step(ctx)
	if err != nil {
		return err
	}
	seconds, did := time.Since(begin).Seconds(), r.Traffic().Machines.Minus(before)
	if r.Steps() > 1 {
		r.seconds, r.waited = append(r.seconds, seconds), append(r.waited, did.ExposedCopies.Seconds())
	}
	if *reference == (train.StepResult{}) {
		*reference = got
	}
	if math.Float64bits(got.Loss) != math.Float64bits(reference.Loss) || math.Float64bits(got.GradNorm) != math.Float64bits(reference.GradNorm) {
		return fmt.Errorf("loss %v and gradient norm %v, elsewhere %v and %v", got.Loss, got.GradNorm, reference.Loss, reference.GradNorm)
	}
	if did.CopiedOut != r.moves || did.CopiedBack != r.moves {
		return fmt.Errorf("%d bytes went to the disk and %d came back, %d are predicted", did.CopiedOut, did.CopiedBack, r.moves)
	}
	r.row.Loss, r.row.GradNorm, r.row.MovedBytes = got.Loss, got.GradNorm, did.CopiedOut
	return nil
}

// finish sums up the steps.
func (r *runner) finish(base, other *runner) Row {
	var added, ratios []float64
	for i, s := range r.seconds {
		added, ratios = append(added, s-base.seconds[i]), append(ratios, s/other.seconds[i])
	}
	r.row.AddedSeconds, r.row.WaitedSeconds = quantile.Median(added), quantile.Median(r.waited)
	r.row.Ratio, r.row.Low, r.row.High = quantile.Median(ratios), quantile.Of(ratios, 0.25), quantile.Of(ratios, 0.75)
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
