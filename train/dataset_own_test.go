package train_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/train"
)

// counting has rows that count modulo ten, from one that differs from batch to batch.
func counting(rows, seqLen, batches int) func(ctx context.Context, rank, ranks int) (data.Batches, error) {
	return func(_ context.Context, rank, ranks int) (data.Batches, error) {
		return data.Sequence("counting", func(context.Context) iter.Seq2[*data.Batch, error] {
			return func(yield func(*data.Batch, error) bool) {
				for n := rank; n < batches*ranks; n += ranks {
					b := data.Batch{Rows: rows, SeqLen: seqLen}
					for i := range rows * seqLen {
						at := int32(n*3 + i/seqLen + i%seqLen)
						b.Tokens, b.Labels = append(b.Tokens, at%10), append(b.Labels, (at+1)%10)
					}
					if !yield(&b, nil) {
						return
					}
				}
			}
		}), nil
	}
}

func TestOwnDataset(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Steps = 6
	c.Validation.Enable, c.Validation.Freq = true, 6
	o := train.Options{
		// Ten tokens: fewer than the tokenizer of text would need.
		Model: train.Llama3("of ten", llama3.Config{Dim: 16, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 8, Hidden: 24, Vocab: 10,
			NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: device.Float32}),
		Dataset: &train.Dataset{Name: "counting", Train: counting(4, 32, 1000), HeldOut: counting(4, 32, 3)},
	}
	whole := newTrainer(t, c, o)
	if err := whole.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	e, err := whole.Evaluate(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !e.Complete || e.Predictions != 3*4*32 {
		t.Errorf("held out: %+v, want all of 3 batches", e)
	}

	c.Job.DumpFolder = t.TempDir()
	first := newTrainer(t, c, o)
	steps(t, first, 3)
	if err := first.Save(); err != nil {
		t.Fatal(err)
	}
	first.Close()
	resumed := newTrainer(t, c, o)
	steps(t, resumed, 3)
	if !maps.EqualFunc(parameters(resumed), parameters(whole), slices.Equal) {
		t.Error("a resumed run on a dataset of one's own differs from one that never stopped")
	}
}

func TestOwnDatasetRefusals(t *testing.T) {
	for _, test := range []struct {
		name    string
		dataset train.Dataset
		want    string
	}{
		{"no Train", train.Dataset{Name: "mine"}, `train: dataset "mine": Train is nil`},
		{"nil batches", train.Dataset{Name: "mine", Train: func(context.Context, int, int) (data.Batches, error) { return nil, nil }},
			`train: dataset "mine": train: it returned nil`},
		{"an error", train.Dataset{Name: "mine", Train: func(context.Context, int, int) (data.Batches, error) { return nil, fmt.Errorf("no disk") }},
			`train: dataset "mine": train: no disk`},
		{"nothing held out", train.Dataset{Name: "mine", Train: counting(4, 32, 9)}, `dataset "mine" holds nothing out`},
		{"another shape", train.Dataset{Name: "mine", Train: counting(4, 16, 9), HeldOut: counting(4, 32, 9)},
			"it has 4 rows of 16 tokens, but 4 rows of 32 are needed"},
		{"an end", train.Dataset{Name: "mine", Train: counting(4, 32, 1), HeldOut: counting(4, 32, 9)}, "the data has ended"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := tinyConfig(t)
			c.Validation.Enable = test.name == "nothing held out" || test.dataset.HeldOut != nil
			r, err := train.New(context.Background(), c, train.Options{Model: tiny(device.Float32), Dataset: &test.dataset})
			if err == nil {
				err = r.Run(context.Background())
				r.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// deaf waits after two batches for something that is not the end of its context.
type deaf struct {
	data.Batches
	given  int
	freed  chan struct{}
	closed bool
}

func (d *deaf) Next(ctx context.Context, b *data.Batch) error {
	if d.given++; d.given > 2 {
		<-d.freed
	}
	return d.Batches.Next(ctx, b)
}

func (d *deaf) Close() error { d.closed = true; return d.Batches.Close() }

// A dataset that heeds no context does not keep Close from returning.
func TestDeafDataset(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Prefetch = 2
	synctest.Test(t, func(t *testing.T) {
		var trains *deaf
		r, err := train.New(context.Background(), c, train.Options{Model: tiny(device.Float32), Dataset: &train.Dataset{Name: "deaf",
			Train: func(ctx context.Context, rank, ranks int) (data.Batches, error) {
				b, err := counting(4, 32, 9)(ctx, rank, ranks)
				trains = &deaf{Batches: b, freed: make(chan struct{})}
				return trains, err
			}}})
		if err != nil {
			t.Fatal(err)
		}
		steps(t, r, 1)
		synctest.Wait()
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), "Next of *train_test.deaf has not returned 10s after the end of its context") || trains.closed {
			t.Errorf("Close: %v", err)
		}
		close(trains.freed)
		synctest.Wait()
		if !trains.closed {
			t.Error("the dataset is not closed once it lets go")
		}
	})
}
