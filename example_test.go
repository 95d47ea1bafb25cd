package lethe_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
	"github.com/lethe-go/lethe/train"
)

// tiny is a transformer with two blocks.
type tiny struct{}

func (tiny) Name() string              { return "tiny" }
func (tiny) Vocab() int                { return 257 }
func (tiny) Parameters() int64         { return 106_944 }
func (tiny) FLOPsPerToken(int) float64 { return 6 * 90_496 }

func (tiny) Build(b *graph.Builder, in train.Inputs, p train.Policies) {
	x := nn.Embedding(b.Scope("embed"), in.Tokens, nn.EmbeddingConfig{Vocab: 257, Dim: 64, DType: device.Float32})
	for i := range 2 {
		b := b.Scope("layers", i)
		checkpoint.Region(b, p.Layer, func() {
			a := attention.GQA{Heads: 4, KVHeads: 2, RoPE: attention.RoPE{Theta: 1e4}, Mask: attention.Mask{Causal: true}}
			x = nn.Add(x, a.Build(b.Scope("attention"), nn.RMSNorm(b.Scope("attention_norm"), x, 1e-5)))
			f := nn.FeedForward{Hidden: 128}
			x = nn.Add(x, f.Build(b.Scope("feed_forward"), nn.RMSNorm(b.Scope("ffn_norm"), x, 1e-5)))
		})
	}
	x = nn.RMSNorm(b.Scope("norm"), x, 1e-5)
	b.AddLoss("cross_entropy", nn.OutputLoss(b.Scope("output"), x, in.Labels, in.Scale, nn.OutputLossConfig{Vocab: 257}))
}

// A model of one's own, trained on the embedded text.
func Example() {
	c := train.DefaultConfig()
	c.Training.Dataset = train.StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.Steps = 64, 4, 30
	c.Optimizer.LR, c.LRScheduler.WarmupSteps = 3e-3, 5
	c.State.Enable = false
	t, err := train.New(context.Background(), c, train.Options{Model: tiny{}})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	var first, last float64
	for range c.Training.Steps {
		r, err := t.Step(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		if first == 0 {
			first = r.Loss
		}
		last = r.Loss
	}
	fmt.Printf("loss fell from %.1f to below 3.5: %v\n", first, last < 3.5)
	// Output: loss fell from 6.1 to below 3.5: true
}
