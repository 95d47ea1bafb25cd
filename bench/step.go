package main

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strconv"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/bench/internal/quantile"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/train"
)

// workload is a training step of a model that both sides know.
type workload struct {
	config      string // its name in peers/torch_moe.py
	batch, seq  int
	model       func() (train.Model, error)
	stepsInTurn int
}

var workloads = []workload{
	{config: "dsv3_debug", batch: 4, seq: 256, model: dsv3Debug, stepsInTurn: 1},
	{config: "dsv3_debug", batch: 2, seq: 1024, model: dsv3Debug, stepsInTurn: 1},
	{config: "mid_dense", batch: 1, seq: 512, model: midDense, stepsInTurn: 1},
	{config: "llama3_debug", batch: 4, seq: 256, model: llama3Debug, stepsInTurn: 3},
	{config: "llama3_debug", batch: 2, seq: 1024, model: llama3Debug, stepsInTurn: 3},
}

func (w workload) name() string { return fmt.Sprintf("step %s %dx%d", w.config, w.batch, w.seq) }

// arguments are those of peers/serve.py.
func (w workload) arguments() []string {
	return []string{"step", "--config", w.config, "--batch", strconv.Itoa(w.batch), "--seq", strconv.Itoa(w.seq)}
}

func dsv3Debug() (train.Model, error) {
	c, err := deepseekv3.Flavor("debugmodel")
	c.DType = device.Float32
	return train.DeepSeekV3("debugmodel", c), err
}

func llama3Debug() (train.Model, error) {
	c, err := llama3.Flavor("debugmodel")
	c.DType = device.Float32
	return train.Llama3("debugmodel", c), err
}

func midDense() (train.Model, error) {
	return train.Llama3("mid_dense", llama3.Config{Dim: 768, Layers: 12, Heads: 12, KVHeads: 4, HeadDim: 64, Hidden: 2048,
		Vocab: 8192, NormEps: 1e-5, RoPE: attention.RoPE{Theta: 5e5}, DType: device.Float32}), nil
}

// torchPeers are the ways to run PyTorch.
var torchPeers = []struct {
	peer        string
	environment []string
	options     []string
}{
	{eager, tuned, nil},
	{compiled, tuned, []string{"--compile"}},
	{asInstalled, nil, nil},
}

func benchSteps(ctx context.Context, o options, t *table) error {
	if o.python == "" {
		return nil
	}
	for _, threads := range o.threads {
		for _, w := range workloads {
			if !o.wants(w.name()) {
				continue
			}
			if err := w.bench(ctx, threads, o, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// bench lets one Trainer and all peers take turns.
func (w workload) bench(ctx context.Context, threads int, o options, t *table) error {
	lethe, err := w.trainer(ctx, threads, "none")
	if err != nil {
		return err
	}
	defer lethe.close()
	running := make([]*torch, len(torchPeers))
	defer func() {
		for _, p := range running {
			if p != nil {
				p.stop()
			}
		}
	}()
	for i, p := range torchPeers {
		running[i], err = startTorch(ctx, o.python, threads, p.environment, append(w.arguments(), p.options...)...)
		if err != nil && p.peer == compiled && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "bench: %s: torch.compile does not run here: %v\n", w.name(), err)
			continue
		}
		if err != nil {
			return err
		}
	}
	var rates []float64
	ratios := make([][]float64, len(torchPeers))
	for range o.repeats {
		ours, err := lethe.steps(ctx, w.stepsInTurn)
		if err != nil {
			return err
		}
		rates = append(rates, float64(w.batch*w.seq)/quantile.Median(ours))
		for i, p := range running {
			if p == nil {
				continue
			}
			theirs, err := p.steps(w.stepsInTurn)
			if err != nil {
				return err
			}
			ratios[i] = append(ratios[i], quantile.Median(theirs)/quantile.Median(ours))
		}
	}
	for i, p := range torchPeers {
		if running[i] == nil {
			continue
		}
		if err := t.add(newRow(w.name(), p.peer, threads, ratios[i], fmt.Sprintf("%.0f tokens/s", quantile.Median(rates)))); err != nil {
			return err
		}
	}
	return nil
}

// trainer makes steps of a workload.
type trainer struct {
	*train.Trainer
	device interface{ Close() error }
	folder string
}

// setUp describes a run of the workload without activation checkpointing.
func (w workload) setUp() (train.Config, train.Options, error) {
	c := train.DefaultConfig()
	c.State.Enable, c.Validation.Enable = false, false
	c.Training.Steps, c.Training.SeqLen, c.Training.LocalBatchSize = 1<<20, w.seq, w.batch
	c.Training.Dataset = train.StringList{"moby_dick"} // to be valid: Options.Dataset takes its place
	c.ActivationCheckpoint.Mode = "none"
	model, err := w.model()
	if err != nil {
		return c, train.Options{}, err
	}
	return c, train.Options{Model: model, Dataset: &train.Dataset{Name: "walk", Train: walks(w.batch, w.seq, model.Vocab())}}, nil
}

// trainer builds the model under a mode of activation checkpointing and makes two steps.
func (w workload) trainer(ctx context.Context, threads int, mode string) (*trainer, error) {
	c, o, err := w.setUp()
	if err != nil {
		return nil, err
	}
	t := &trainer{}
	if t.folder, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	c.Job.DumpFolder, c.Training.Threads, c.ActivationCheckpoint.Mode = t.folder, threads, mode
	d, err := openDevice(threads)
	if err != nil {
		return nil, err
	}
	t.device, o.Device = d, d
	if t.Trainer, err = train.New(ctx, c, o); err != nil {
		t.close()
		return nil, err
	}
	_, err = t.steps(ctx, 2)
	return t, err
}

func (t *trainer) close() {
	if t.Trainer != nil {
		t.Trainer.Close()
	}
	t.device.Close()
	os.RemoveAll(t.folder)
}

// steps makes n steps and returns their seconds.
func (t *trainer) steps(ctx context.Context, n int) (times []float64, err error) {
	for range n {
		times = append(times, seconds(func() { _, err = t.Step(ctx) }))
		if err != nil {
			return nil, err
		}
	}
	return times, nil
}

// walks are the tokens of make_tokens in peers/torch_moe.py: each the one before times
// five plus seven, and two random bits. One document fills a row.
func walks(rows, seqLen, vocab int) func(context.Context, int, int) (data.Batches, error) {
	return func(context.Context, int, int) (data.Batches, error) {
		return data.Sequence("walk", func(context.Context) iter.Seq2[*data.Batch, error] {
			return func(yield func(*data.Batch, error) bool) {
				state := uint32(12345)
				next := func() uint32 {
					state = (state*1103515245 + 12345) & 0x7fffffff
					return state
				}
				for {
					b := data.Batch{Rows: rows, SeqLen: seqLen}
					for range rows {
						token := int32((next() >> 8) % uint32(vocab))
						for range seqLen {
							b.Tokens = append(b.Tokens, token)
							token = (5*token + 7 + int32(next()>>16&3)) % int32(vocab)
							b.Labels = append(b.Labels, token)
						}
						next() // for the token behind the last label
					}
					if !yield(&b, nil) {
						return
					}
				}
			}
		}), nil
	}
}
