package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/internal/chrometrace"
	"github.com/lethe-go/lethe/train"
)

// Row is what the trace of a step says of one link.
type Row struct {
	Link                 string  `json:"link"`
	StepSeconds          float64 `json:"step_seconds"`
	ComputeSeconds       float64 `json:"compute_seconds"`
	CommunicationSeconds float64 `json:"communication_seconds"`
	ExposedSeconds       float64 `json:"exposed_seconds"`
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
		row, err := readTrace(filepath.Join(c.TracesPath(), fmt.Sprintf("step-%06d.trace.json", step)))
		if err != nil {
			return Row{}, err
		}
		steps = append(steps, row)
	}
	slices.SortFunc(steps, func(a, b Row) int { return cmp.Compare(a.ExposedPct, b.ExposedPct) })
	row := steps[len(steps)/2]
	row.LeastPct = steps[0].ExposedPct
	return row, row.predict(c, o, float64(x.shards))
}

// readTrace adds up the slices of steps.
func readTrace(path string) (Row, error) {
	var r Row
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	var trace chrometrace.Trace
	if err := json.Unmarshal(text, &trace); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	compute, workers := map[int]bool{}, map[int]bool{} // threads, processes
	for _, e := range trace.Events {
		switch name, _ := e.Args["name"].(string); {
		case e.Name == "thread_name" && name == "compute":
			compute[e.Thread] = true
		case e.Name == "process_name" && len(name) > 4 && name[:5] != "rank ":
			workers[e.Process] = true
		}
	}
	for _, e := range trace.Events {
		if e.Phase != chrometrace.Complete || workers[e.Process] {
			continue
		}
		seconds := float64(*e.Duration) / 1e9
		switch {
		case e.Category == "group":
			r.StepSeconds = max(r.StepSeconds, float64(e.Time+*e.Duration)/1e9)
		case e.Category == "host" || e.Category == "launch":
		case !compute[e.Thread]:
			r.CommunicationSeconds += seconds
		case e.Category == "wait":
			r.ExposedSeconds += seconds
		case e.Args["flops"] != nil:
			r.ComputeSeconds += seconds
		}
	}
	r.ExposedPct = 100 * r.ExposedSeconds / r.CommunicationSeconds
	return r, nil
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
