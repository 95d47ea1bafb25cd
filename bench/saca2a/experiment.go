package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/train"
)

// experiment is a model on some ranks, and what is compared on it.
type experiment struct {
	scale, layers, tokens, ranks, steps, threads int

	cases []experimentCase
	links []link

	// budgets are what a rank may hold in the cases that plan within another one's memory, by
	// the name of that one.
	budgets map[string]int64
	// costs is the folder in which the times of operations are kept as long as the command runs.
	costs string

	processes
}

// experimentCase is one way to checkpoint.
type experimentCase struct {
	name, mode string
	rerun      train.StringList
	within     string // the case whose memory is the budget
}

// repeats reports whether backward exchanges again: what is planned may.
func (c experimentCase) repeats(again bool) bool {
	return len(c.rerun) > 0 && (c.within == "" || again)
}

var exchanges = train.StringList{"all_to_all", "to_host"}

var knownCases = []experimentCase{
	{name: "before", mode: "selective", rerun: exchanges},
	{name: "after", mode: "selective"},
	{name: "planned-before", mode: "budget", rerun: exchanges, within: "before"},
	{name: "planned-after", mode: "budget", rerun: exchanges, within: "after"},
	{name: "full", mode: "full"},
	{name: "none", mode: "none"},
}

func parseCases(names string) ([]experimentCase, error) {
	var list []experimentCase
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(knownCases, func(c experimentCase) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--cases: no case %q: have before, after, planned-before, planned-after, full, none", name)
		}
		list = append(list, knownCases[i])
	}
	return list, nil
}

// link between the ranks, by the name it was given.
type link struct {
	name string
	local.Link
}

func parseLinks(names string, latency time.Duration) ([]link, error) {
	var list []link
	for name := range strings.SplitSeq(names, ",") {
		l := link{name: name}
		if name != "none" {
			bandwidth, err := local.ParseBandwidth(name)
			if err != nil {
				return nil, fmt.Errorf("--links: %w, or none", err)
			}
			l.Link = local.Link{Latency: latency, Bandwidth: bandwidth}
		}
		list = append(list, l)
	}
	return list, nil
}

// vocabulary is the number of token ids; the data are bytes.
const vocabulary = 2048

func (x experiment) shape() deepseekv3.Config {
	c, err := deepseekv3.Flavor("16B")
	if err != nil {
		panic(err) // the flavor is part of the module
	}
	c.Dim, c.Hidden, c.ExpertHidden = c.Dim/x.scale, c.Hidden/x.scale, c.ExpertHidden/x.scale
	c.Heads, c.KVLoRA = max(1, c.Heads/x.scale), c.KVLoRA/x.scale
	c.Layers, c.Vocab = 1+x.layers, vocabulary
	return c
}

func (x experiment) describe() string {
	c := x.shape()
	return fmt.Sprintf("DeepSeek-V3 16B, widths divided by %d: dim %d, %d heads, 1 dense layer of %d and %d of %d experts of %d (%d shared, %d chosen), %d parameters; %d ranks, %d tokens each, float32",
		x.scale, c.Dim, c.Heads, c.Hidden, x.layers, c.Experts, c.ExpertHidden, c.SharedExperts, c.TopK, c.Parameters(), x.ranks, x.tokens)
}

func (x experiment) config(c experimentCase) train.Config {
	t := train.DefaultConfig()
	t.Job.DumpFolder = os.DevNull // nothing is written
	t.Training.Dataset = train.StringList{"moby_dick"}
	t.Training.SeqLen, t.Training.LocalBatchSize, t.Training.Steps = x.tokens, 1, x.steps
	t.Training.Threads = x.threads
	t.Optimizer.LR, t.LRScheduler.WarmupSteps = 2.2e-4, 1
	t.Parallelism.ExpertParallelDegree = x.ranks
	if x.world != nil {
		t.Parallelism.Backend = "mpi"
	}
	t.ActivationCheckpoint.Mode, t.ActivationCheckpoint.Rerun = c.mode, c.rerun
	t.ActivationCheckpoint.MemoryBudget.Bytes = x.budgets[c.within]
	t.State.Enable = false
	return t
}

// plan finds the budgets: what the cases hold that others are to keep within.
func (x *experiment) plan(ctx context.Context) error {
	x.budgets = map[string]int64{}
	for _, c := range x.cases {
		i := slices.IndexFunc(knownCases, func(k experimentCase) bool { return k.name == c.within })
		if i < 0 {
			continue
		}
		t, err := train.New(ctx, x.config(knownCases[i]), x.options(local.Link{}))
		if err != nil {
			return err
		}
		x.budgets[c.within] = t.PredictedBytes()
		if err := t.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (x experiment) options(l local.Link) train.Options {
	return train.Options{Model: train.DeepSeekV3(fmt.Sprintf("16B/%d", x.scale), x.shape()), Link: l, World: x.world, CostFolder: x.costs}
}

// predicted is by how many bytes more "after" saves than "before" over all ranks, whatever
// the router chooses: in every layer the rows that arrive at the experts, D floats for each
// choice of each token, and the int32 counts of each pair of ranks. Of those the received
// are kept, and both on the host; to repeat the exchange takes those to send. What comes
// back from the experts costs nothing more: to repeat that exchange "before" keeps the result
// of the experts' last product, as many rows, which "after" has no use for.
func (x experiment) predicted() int64 {
	c := x.shape()
	rows := x.ranks * x.tokens * c.TopK * c.Dim * 4
	counts := (3 - 1) * x.ranks * c.Experts * 4
	return int64(x.layers * (rows + counts))
}

// verify holds what is predicted about memory against an instrument. Inputs that backward
// reads are the same bytes in every case, so that saved bytes are compared with the first's.
func (x experiment) verify(ctx context.Context) (string, error) {
	var first []train.Measured
	for _, c := range x.cases {
		measured, err := train.MeasurePeaks(ctx, x.config(c), c.mode, x.options(local.Link{}))
		if err != nil {
			return "", err
		}
		if first == nil {
			first = measured
		}
		for i, m := range measured {
			saved, predicted := m.Carried-first[i].Carried, m.PredictedCarried-first[i].PredictedCarried
			if m.Peak != m.Predicted || saved != predicted || !m.SameLoss {
				return "", fmt.Errorf("case %s, rank %d, program %s: measured are a peak of %d bytes and %d more saved than in the first case, predicted %d and %d; same loss: %v",
					c.name, m.Rank, m.Program, m.Peak, saved, m.Predicted, predicted, m.SameLoss)
			}
		}
	}
	return "memory: peaks, and what one case saves more than another, are measured as predicted on every rank", nil
}
