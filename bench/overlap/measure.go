package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/train"
)

// Row is what the trace of a step says of one link: seconds of all ranks together, but for
// those of the step.
type Row struct {
	Link           string  `json:"link"`
	StepSeconds    float64 `json:"step_seconds"`
	ComputeSeconds float64 `json:"compute_seconds"`
	// CommunicationSeconds data was moving on the link, for ExposedSeconds of that a compute
	// lane waited for it, and for WaitedSeconds besides one waited for other ranks to come.
	CommunicationSeconds float64 `json:"communication_seconds"`
	ExposedSeconds       float64 `json:"exposed_seconds"`
	WaitedSeconds        float64 `json:"waited_seconds"`
	// ExposedPct is the exposed part of communication, LeastPct that of the step that was
	// disturbed the least.
	ExposedPct   float64 `json:"exposed_pct"`
	LeastPct     float64 `json:"least_pct"`
	PredictedPct float64 `json:"predicted_pct"`
}

func (x experiment) measure(ctx context.Context, link local.Link) (Row, error) {
	folder, err := os.MkdirTemp("", "overlap")
	if err != nil {
		return Row{}, err
	}
	defer os.RemoveAll(folder)
	c := train.DefaultConfig()
	c.Job.DumpFolder = folder
	c.Training.Dataset = train.StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.Steps = x.tokens, 1, x.steps
	c.Training.Threads = x.threads
	c.LRScheduler.WarmupSteps = 1
	c.Parallelism.DataParallelShardDegree, c.Parallelism.FSDPReshardAfterForward = x.shards, x.reshard
	c.State.Enable = false
	c.Profiling.EnableProfiling, c.Profiling.ProfileFreq = true, 1
	o := train.Options{Model: train.Llama3("overlap", x.shape()), Link: link}
	t, err := train.New(ctx, c, o)
	if err != nil {
		return Row{}, err
	}
	err = t.Run(ctx)
	if closing := t.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return Row{}, err
	}
	var steps []Row
	for step := 2; step <= x.steps; step++ { // the first finds no page of its memory there
		ranks, err := readTrace(filepath.Join(c.TracesPath(), fmt.Sprintf("step-%06d.trace.json", step)))
		if err != nil {
			return Row{}, err
		}
		one, err := row(ranks)
		if err != nil {
			return Row{}, err
		}
		steps = append(steps, one)
	}
	slices.SortFunc(steps, func(a, b Row) int { return cmp.Compare(a.ExposedPct, b.ExposedPct) })
	median := steps[len(steps)/2]
	median.LeastPct = steps[0].ExposedPct
	return median, median.predict(c, o, float64(x.shards))
}

// predict plans for ranks that compute as fast as those of the trace did.
func (r *Row) predict(c train.Config, o train.Options, ranks float64) error {
	plan := func(flopsPerSecond float64) (train.ClusterRow, error) {
		p, err := train.PlanForCluster(c, o, train.Cluster{FLOPs: flopsPerSecond, Link: o.Link})
		if err != nil {
			return train.ClusterRow{}, err
		}
		i := slices.IndexFunc(p.Rows, func(row train.ClusterRow) bool { return row.Mode == c.ActivationCheckpoint.Mode })
		return p.Rows[i], nil
	}
	unit, err := plan(1)
	if err != nil {
		return err
	}
	row, err := plan(unit.ComputeSeconds / (r.ComputeSeconds / ranks))
	r.PredictedPct = 100 * row.ExposedSeconds / row.CommunicationSeconds
	return err
}
