package generate

import (
	"context"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/moe"
)

type llama struct{ llama3.Config }

func (c llama) Vocab() int { return c.Config.Vocab }

func (c llama) Logits(b *graph.Builder, in Inputs) graph.Value {
	return llama3.Logits(b, c.Config, llama3.Inputs{Tokens: in.Tokens, Positions: in.Positions, Cache: in.Cache}, in.Row)
}

type deepseek struct{ deepseekv3.Config }

func (c deepseek) Vocab() int { return c.Config.Vocab }

func (c deepseek) Logits(b *graph.Builder, in Inputs) graph.Value {
	return deepseekv3.Logits(b, c.Config, deepseekv3.Inputs{Tokens: in.Tokens, Positions: in.Positions, Cache: in.Cache}, in.Row)
}

// grouped has grouped-query attention, with all that llama3 can have besides.
func grouped(keyHeads int, dtype device.DType) llama {
	return llama{llama3.Config{Dim: 48, Layers: 2, Heads: 6, KVHeads: keyHeads, HeadDim: 8, Hidden: 96, Vocab: 61, NormEps: 1e-5, QKNorm: true,
		RoPE: attention.RoPE{Theta: 1e4, Scaling: attention.Scaling{Factor: 4, LowFrequency: 1, HighFrequency: 4, OriginalPositions: 64}}, DType: dtype}}
}

// tied is multi-head attention with the embedding as output layer.
func tied() llama {
	c := grouped(6, device.Float32)
	c.TieEmbedding, c.QKNorm = true, false
	return c
}

// latent has latent attention, YaRN, a dense layer and a mixture of experts.
func latent(queryLoRA int, dtype device.DType) deepseek {
	return deepseek{deepseekv3.Config{Dim: 48, Layers: 3, DenseLayers: 1, Vocab: 61, Hidden: 96,
		Heads: 4, QLoRA: queryLoRA, KVLoRA: 24, NoPEDims: 12, RoPEDims: 8, ValueDim: 10,
		RoPE: attention.RoPE{Theta: 1e4, YaRN: attention.YaRN{Factor: 4, OriginalPositions: 32}}, MScale: 0.7,
		Experts: 8, TopK: 2, ExpertHidden: 32, SharedExperts: 1, Score: moe.Sigmoid, RouteNorm: true, RouteScale: 2.5,
		Groups: 4, LimitedGroups: 2, LoadBalance: 1e-3, NormEps: 1e-5, DType: dtype}}
}

var models = map[string]Model{
	"GQA":         grouped(2, device.Float32),
	"GQA float64": grouped(3, device.Float64),
	"MHA tied":    tied(),
	"MLA":         latent(0, device.Float32),
	"MLA q_lora":  latent(20, device.Float32),
	"MLA float64": latent(20, device.Float64),
	"MQA":         grouped(1, device.Float32),
}

func newStore(t testing.TB) *graph.Store {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: 2})
	check(t, err)
	s := graph.NewStore(dev, graph.StoreOptions{Seed: 3})
	t.Cleanup(func() {
		s.Close()
		dev.Close()
	})
	return s
}

func newGenerator(t testing.TB, s *graph.Store, m Model, o Options) *Generator {
	t.Helper()
	g, err := New(s, m, o)
	check(t, err)
	t.Cleanup(func() { g.Close() })
	return g
}

// prompt of n tokens.
func prompt(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*7 + i*3 + 5) % vocab)
	}
	return ids
}

// collect returns what a generation yields.
func collect(t testing.TB, g *Generator, prompt []int32, count int, s Sampling, stop ...int32) []int32 {
	t.Helper()
	var ids []int32
	for id, err := range g.Tokens(context.Background(), prompt, count, s, stop...) {
		check(t, err)
		ids = append(ids, id)
	}
	return ids
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
