package train_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/train"
)

// grouped has heads for four ranks, and a vocabulary that no even number divides.
func grouped(dtype device.DType, change ...func(*llama3.Config)) train.Model {
	c := llama3.Config{Dim: 24, Layers: 2, Heads: 8, KVHeads: 4, HeadDim: 4, Hidden: 36, Vocab: 257, QKNorm: true,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: dtype}
	for _, f := range change {
		f(&c)
	}
	return train.Llama3("grouped", c)
}

func tied(c *llama3.Config)        { c.TieEmbedding = true }
func withDropout(c *llama3.Config) { c.Dropout = 0.3 }

// degrees are replicas, shards, experts and tensors.
type degrees [4]int

// together is sharded with tensor groups.
func together(t testing.TB, d degrees) train.Config {
	c := sharded(t, d[0], d[1], d[2])
	c.Parallelism.TensorParallelDegree = d[3]
	c.Training.GlobalBatchSize = 8 / (d[0] * max(d[1], d[2]))
	return c
}

// However many ranks compute the same tokens together, and whatever divides parameters
// besides, loss and gradients are those of one rank.
func TestTensorGroupsTrainTheSame(t *testing.T) {
	for dtype, tolerance := range map[device.DType]float64{device.Float32: 1e-5, device.Float64: 1e-10} {
		if dtype == device.Float32 && testing.Short() {
			continue
		}
		for _, x := range []struct {
			model   train.Model
			layouts []degrees
		}{
			{grouped(dtype), []degrees{{1, 1, 1, 2}, {1, 1, 1, 4}, {2, 1, 1, 2}, {1, 2, 1, 2}, {2, 2, 1, 2}}},
			{grouped(dtype, tied, withDropout), []degrees{{1, 1, 1, 2}, {1, 2, 1, 4}}},
			{latent(dtype), []degrees{{1, 1, 1, 2}, {1, 1, 1, 4}, {1, 1, 2, 2}, {1, 2, 2, 2}, {2, 1, 2, 2}}},
		} {
			for rows := 1; rows <= 2; rows++ {
				if rows == 1 && (dtype == device.Float32 || testing.Short()) {
					continue
				}
				run := func(d degrees) (*train.Trainer, train.StepResult) {
					c := together(t, d)
					c.Training.DType, c.Training.LocalBatchSize = dtype.String(), rows
					r := newTrainer(t, c, train.Options{Model: x.model})
					return r, steps(t, r, 1)[0]
				}
				one, want := run(degrees{1, 1, 1, 1})
				gradients := one.Gradients()[0]
				if testing.Short() {
					x.layouts = x.layouts[len(x.layouts)-2:]
				}
				for _, l := range x.layouts {
					name := fmt.Sprintf("%s, %v, %d rows, replicas, shards, experts, tensors %v", x.model.Name(), dtype, rows, l)
					r, got := run(l)
					if got.Tokens != want.Tokens || got.Valid != want.Valid || got.Padding != want.Padding {
						t.Errorf("%s: %+v, want %+v", name, got, want)
					}
					if loads := moe.Loads(r.Stores()[0]); !reflect.DeepEqual(loads, moe.Loads(one.Stores()[0])) {
						t.Errorf("%s: loads of experts %v, want %v", name, loads, moe.Loads(one.Stores()[0]))
					}
					wantOneRanks(t, name, r, got, want, gradients, tolerance)
				}
			}
		}
	}
}

// What is kept, gathered again or added up again changes no bit, nor does the number of threads.
func TestTensorGroupsAreTheSameUnderEveryPlan(t *testing.T) {
	var want []map[string][]float64
	var losses []train.StepResult
	i := 0
	for _, mode := range []string{"none", "selective", "full"} {
		for _, rerun := range []train.StringList{nil, {"gathered_activation"}, {"all_gather", "reduce_scatter", "all_to_all"}} {
			if testing.Short() && rerun == nil && mode != "none" {
				continue
			}
			c := together(t, degrees{1, 2, 2, 2})
			c.ActivationCheckpoint.Mode, c.ActivationCheckpoint.Rerun, c.Training.Threads = mode, rerun, 1+i%2
			i++
			r := newTrainer(t, c, train.Options{Model: tinyLatent()})
			got := steps(t, r, 2)
			if want == nil {
				want, losses = r.Parameters(), got
			}
			if !reflect.DeepEqual(r.Parameters(), want) || !reflect.DeepEqual(got, losses) {
				t.Errorf("%s, rerun %v: trains other bits than none: %v, want %v", mode, rerun, got, losses)
			}
		}
	}
}

// On every rank the peak is the predicted one, and dead memory is not read.
func TestTensorGroupsMeasuredPeakIsPredicted(t *testing.T) {
	for _, x := range []struct {
		model  train.Model
		layout degrees
		rerun  train.StringList
	}{
		{grouped(device.Float32, tied), degrees{1, 2, 1, 2}, nil},
		{tinyLatent(), degrees{1, 1, 2, 2}, train.StringList{"gathered_activation"}},
	} {
		for _, mode := range []string{"none", "selective", "full"} {
			if testing.Short() && mode != "selective" {
				continue
			}
			c := together(t, x.layout)
			c.ActivationCheckpoint.Rerun = x.rerun
			all, err := train.MeasurePeaks(context.Background(), c, mode, train.Options{Model: x.model})
			if err != nil {
				t.Fatal(err)
			}
			ranks := map[int]bool{}
			for _, m := range all {
				ranks[m.Rank] = true
				if m.Peak != m.Predicted || m.Differs != "" || !m.SameLoss {
					t.Errorf("%s, %v, %s: %+v: want the predicted peak, and the same loss when dead memory is poisoned", x.model.Name(), x.layout, mode, m)
				}
			}
			if n := x.layout[0] * max(x.layout[1], x.layout[2]) * x.layout[3]; len(ranks) != n {
				t.Errorf("%d ranks were measured, want %d", len(ranks), n)
			}
		}
	}
}

// Held-out data is measured as on one rank.
func TestTensorGroupsEvaluate(t *testing.T) {
	var want train.Evaluation
	for _, d := range []degrees{{1, 1, 1, 1}, {1, 2, 1, 2}} {
		c := together(t, d)
		c.Training.DType = "float64"
		c.Optimizer.EMADecay, c.Validation.UseEMA = 0.5, true
		c.Validation.Enable, c.Validation.Steps = true, 4/(d[0]*d[1])
		r := newTrainer(t, c, train.Options{Model: grouped(device.Float64)})
		steps(t, r, 2)
		got, err := r.Evaluate(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if want.Predictions == 0 {
			want = got
		}
		near(t, fmt.Sprintf("%v: held-out loss", d), []float64{got.Loss}, []float64{want.Loss}, 1e-10)
		if got.Predictions != want.Predictions {
			t.Errorf("%v: %+v, want %+v", d, got, want)
		}
	}
}

// Ranks that compute together must read the same: a dataset that gives each of them others is
// refused at the first step in which it does.
func TestTensorGroupsReadTheSame(t *testing.T) {
	c := together(t, degrees{1, 1, 1, 2})
	opened := int32(0)
	own := &train.Dataset{Name: "restless", Train: func(ctx context.Context, rank, ranks int) (data.Batches, error) {
		first := atomic.AddInt32(&opened, 1)
		return data.Sequence("restless", func(context.Context) iter.Seq2[*data.Batch, error] {
			return func(yield func(*data.Batch, error) bool) {
				for i := int32(0); ; i++ {
					b := data.Batch{Rows: 1, SeqLen: c.Training.SeqLen}
					for j := range int32(c.Training.SeqLen) {
						b.Tokens, b.Labels = append(b.Tokens, j), append(b.Labels, j+1)
					}
					if i == 10 { // in the second step
						b.Tokens[3] = first
					}
					if !yield(&b, nil) {
						return
					}
				}
			}
		}), nil
	}}
	r := newTrainer(t, c, train.Options{Model: grouped(device.Float32), Dataset: own})
	steps(t, r, 1)
	if _, err := r.Step(context.Background()); err == nil || !strings.Contains(err.Error(), "ranks that compute together have read different batches") {
		t.Errorf("error %v", err)
	}
}

// What cannot be divided is refused with the numbers and what would do.
func TestTensorGroupsAreValidated(t *testing.T) {
	sum := func(_ *graph.Builder, logits graph.Value, _ train.Inputs) graph.Value { return graph.Sum(logits) }
	for _, test := range []struct {
		layout degrees
		o      train.Options
		want   string
	}{
		{degrees{1, 1, 1, 0}, train.Options{Model: tiny(device.Float32)}, "parallelism.tensor_parallel_degree: must be at least 1: 0; set 1 to leave layers whole"},
		{degrees{1, 1, 1, 4}, train.Options{Model: tiny(device.Float32)}, "parallelism.tensor_parallel_degree: must divide the 2 key and value heads of llama3 tiny: 4; set 2"},
		{degrees{1, 1, 1, 5}, train.Options{Model: tiny(device.Float32)}, "must divide the 4 heads and the 2 key and value heads and the 48 hidden units of a feed-forward of llama3 tiny: 5; set 2"},
		{degrees{1, 1, 2, 3}, train.Options{Model: tinyLatent()}, "must divide the 4 heads and the 32 hidden units of an expert of deepseek_v3 tiny: 3; set 2"},
		{degrees{1, 1, 1, 2}, train.Options{Model: tiny(device.Float32), Loss: sum}, "parallelism.tensor_parallel_degree: must be 1 for a loss of one's own"},
	} {
		c := tinyConfig(t)
		c.Parallelism.ExpertParallelDegree, c.Parallelism.TensorParallelDegree = test.layout[2], test.layout[3]
		_, err := train.New(context.Background(), c, test.o)
		var config *train.ConfigError
		if !errors.As(err, &config) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.layout, err, test.want)
		}
	}
}

// Ranks that compute together read the same batches as the costs of a budget are measured too.
func TestTensorGroupsMeasureCostsOfTheSameBatches(t *testing.T) {
	c := together(t, degrees{1, 1, 2, 2})
	c.ActivationCheckpoint.Mode, c.ActivationCheckpoint.MemoryBudget = "budget", train.MemoryBudget{Bytes: 1 << 30}
	batches := counting(c.Training.LocalBatchSize, c.Training.SeqLen, 1000)
	var opened [2]atomic.Int32 // by data rank
	own := &train.Dataset{Name: "counting", Train: func(ctx context.Context, rank, ranks int) (data.Batches, error) {
		if ranks != len(opened) {
			t.Errorf("opened for %d of %d ranks, want %d ranks", rank, ranks, len(opened))
			return batches(ctx, rank, ranks)
		}
		opened[rank].Add(1)
		return batches(ctx, rank, ranks)
	}}
	newTrainer(t, c, train.Options{Model: latent(device.Float32), Dataset: own, CostFolder: t.TempDir()})
	// For training and for costs, on 2 ranks each; all 4 ranks compare the very first batch.
	if a, b := opened[0].Load(), opened[1].Load(); a != 2*2+4 || b != 2*2 {
		t.Errorf("the batches of the data ranks are opened %d and %d times, want 8 and 4", a, b)
	}
}
