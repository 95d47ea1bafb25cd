package generate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/generate"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// oneLayer is a model. Its parameters have random values here; those of a
// training run come with train.OpenPretrained.
type oneLayer struct{}

func (oneLayer) Vocab() int { return 257 }

func (m oneLayer) Logits(b *graph.Builder, in generate.Inputs) graph.Value {
	x := nn.Embedding(b.Scope("embed"), in.Tokens, nn.EmbeddingConfig{Vocab: m.Vocab(), Dim: 32})
	a := attention.GQA{Heads: 4, KVHeads: 2, RoPE: attention.RoPE{Theta: 1e4}, Mask: attention.Mask{Causal: true},
		Positions: in.Positions, Cache: in.Cache}
	x = nn.Add(x, a.Build(b.Scope("attention"), nn.RMSNorm(b.Scope("attention_norm"), x, 0)))
	x = nn.RowAt(nn.RMSNorm(b.Scope("norm"), x, 0), in.Row)
	return nn.OutputLogits(b.Scope("output"), x, nn.OutputLossConfig{Vocab: m.Vocab()})
}

func Example() {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	store := graph.NewStore(dev, graph.StoreOptions{Seed: 1})
	defer store.Close()
	g, err := generate.New(store, oneLayer{}, generate.Options{MaxSeqLen: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()

	n := 0
	sampling := generate.Sampling{Temperature: 0.8, TopP: 0.9, Seed: 7}
	for _, err := range g.Tokens(context.Background(), []int32{72, 105}, 10, sampling) {
		if err != nil {
			log.Fatal(err)
		}
		n++
	}
	fmt.Println(n, "tokens; keys of", store.Variable("attention.cache.keys").Spec)
	// Output: 10 tokens; keys of float32[1 64 2 8]
}
