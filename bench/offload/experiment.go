package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/train"
)

// experiment is a model that is trained within a budget.
type experiment struct {
	dim, layers, tokens, batch, steps, threads int

	share float64 // of what keeping everything takes more than the least
	dir   string
	disks []disk

	folder string // of what the command writes
	costs  checkpoint.Costs
	// budget is what a step may hold, between least, the smallest plan without a disk, and
	// most, everything kept.
	budget, least, most int64
}

// experimentCase is one way to get along.
type experimentCase struct {
	name, mode string
	offloads   bool
}

var (
	keep = experimentCase{name: "keep", mode: "none"}
	// within the budget; the first is what the others are compared with.
	within = []experimentCase{
		{name: "rerun", mode: "budget"},
		{name: "plan", mode: "budget", offloads: true},
		{name: "move", mode: "none", offloads: true},
	}
)

const vocabulary = 257 // bytes, and the end of a document

func (x experiment) shape() llama3.Config {
	return llama3.Config{Dim: x.dim, Layers: x.layers, Heads: x.dim / 16, KVHeads: x.dim / 16, HeadDim: 16, Hidden: 3 * x.dim, Vocab: vocabulary,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}}
}

func (x experiment) describe() string {
	return fmt.Sprintf("Llama of dim %d, %d layers, %d parameters; %d × %d tokens, float32; keeping everything takes %d bytes, the least is %d, the budget %d",
		x.dim, x.layers, x.shape().Parameters(), x.batch, x.tokens, x.most, x.least, x.budget)
}

func (x experiment) config(c experimentCase, d disk) train.Config {
	t := train.DefaultConfig()
	t.Job.DumpFolder = x.folder
	t.Training.Dataset = train.StringList{"moby_dick"}
	t.Training.SeqLen, t.Training.LocalBatchSize, t.Training.Steps = x.tokens, x.batch, x.steps
	t.Training.Threads = x.threads
	t.LRScheduler.WarmupSteps = 1
	t.State.Enable = false
	a := &t.ActivationCheckpoint
	if a.Mode = c.mode; c.mode == "budget" {
		a.MemoryBudget.Bytes = x.budget
	}
	if c.offloads {
		a.Offload, a.OffloadBandwidth = train.StringList{"*"}, d.bandwidth
	}
	return t
}

func (x experiment) options(d disk) train.Options {
	return train.Options{Model: train.Llama3("offload", x.shape()), Costs: x.costs, CostFolder: x.folder, Disk: d.through}
}

// prepare measures what disks do and operations cost, and finds the budget.
func (x *experiment) prepare(ctx context.Context) error {
	for i := range x.disks {
		if err := x.disks[i].measure(x.folder); err != nil {
			return fmt.Errorf("disk %s: %w", x.disks[i].name, err)
		}
	}
	x.budget = 1 << 60
	t, err := train.New(ctx, x.config(within[0], disk{}), x.options(disk{})) // measures costs
	if err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	tables, err := filepath.Glob(filepath.Join(x.folder, "*.json"))
	if err != nil || len(tables) != 1 {
		return fmt.Errorf("tables of costs: %v, %v; want one", tables, err)
	}
	if x.costs, err = train.LoadCosts(tables[0]); err != nil {
		return err
	}
	r, err := train.PlanReportFor(x.config(keep, disk{}), x.options(disk{}))
	if err != nil {
		return err
	}
	x.most, x.least = r.Rows[0].TotalBytes, r.Rows[len(r.Rows)-1].BudgetBytes
	x.budget = x.least + int64(x.share*float64(x.most-x.least))
	return nil
}

// verify holds the predicted peaks of a case against an instrument.
func (x experiment) verify(ctx context.Context, c experimentCase, d disk) error {
	all, err := train.MeasurePeaks(ctx, x.config(c, d), c.mode, x.options(disk{}))
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Peak != m.Predicted || m.Differs != "" || !m.SameLoss {
			return fmt.Errorf("program %s: a peak of %d bytes is measured, %d predicted; %s; same loss: %v", m.Program, m.Peak, m.Predicted, m.Differs, m.SameLoss)
		}
	}
	return nil
}
