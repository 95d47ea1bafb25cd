package main

import (
	"fmt"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/llama3"
)

// inputs of a microbatch.
type inputs struct{ tokens, labels, positions, documentStart, scale graph.Value }

// model is what is planned: forward and backward, and gradients that are stored.
type model struct {
	name          string
	batch, tokens int
	build         func(b *graph.Builder, in inputs)
}

// models are the ones that docs/planner.md speaks of.
func models() []model {
	return []model{
		{"llama3 debugmodel", 4, 256, llama("debugmodel")},
		{"deepseek_v3 debugmodel", 4, 256, deepSeek("debugmodel")},
		{"llama3 8B", 1, 8192, llama("8B")},
		{"deepseek_v3 16B", 4, 4096, deepSeek("16B")},
		synthetic(20_000),
	}
}

func llama(flavor string) func(b *graph.Builder, in inputs) {
	return func(b *graph.Builder, in inputs) {
		c, err := llama3.Flavor(flavor)
		if err != nil {
			b.Fail("%v", err)
			return
		}
		buildLlama(b, in, c)
	}
}

func buildLlama(b *graph.Builder, in inputs, c llama3.Config) {
	llama3.Build(b, c, llama3.Inputs{Tokens: in.tokens, Labels: in.labels, Positions: in.positions,
		DocumentStart: in.documentStart, Scale: in.scale}, func(int) checkpoint.Policy { return checkpoint.Budget() })
}

func deepSeek(flavor string) func(b *graph.Builder, in inputs) {
	return func(b *graph.Builder, in inputs) {
		c, err := deepseekv3.Flavor(flavor)
		if err != nil {
			b.Fail("%v", err)
			return
		}
		deepseekv3.Build(b, c, deepseekv3.Inputs{Tokens: in.tokens, Labels: in.labels, Positions: in.positions,
			DocumentStart: in.documentStart, Scale: in.scale}, deepseekv3.Options{Layer: checkpoint.Budget(), Training: true})
	}
}

// synthetic is a Llama of as many narrow layers as make a number of ops.
func synthetic(ops int) model {
	const perLayer = 79
	return model{fmt.Sprintf("synthetic, %d ops", ops), 1, 64, func(b *graph.Builder, in inputs) {
		buildLlama(b, in, llama3.Config{Dim: 64, Layers: ops / perLayer, Heads: 4, KVHeads: 2, HeadDim: 16, Hidden: 160, Vocab: 256,
			NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, Dropout: 0.1})
	}}
}

// graph builds the step without allocating its parameters.
func (m model) graph() (*graph.Graph, error) {
	dev, err := cpu.New(cpu.Options{Workers: 2})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	b := graph.New(graph.NewStore(dev, graph.StoreOptions{Seed: 1}))
	ids := func(name string) graph.Value { return b.Input(name, device.Int32, m.batch, m.tokens) }
	m.build(b, inputs{ids("tokens"), ids("labels"), ids("positions"), ids("document_start"), b.Input("scale", device.Float32)})
	parameters := b.Parameters()
	for i, grad := range b.Backward(parameters...) {
		b.Assign(b.Scratch("gradient."+parameters[i].Name(), device.Float32, grad.Spec().Shape...), grad)
	}
	return b.Graph()
}
