// Package modelgraph builds the training steps of whole models, with an activation
// checkpointing policy of choice and no memory behind their parameters: graphs to plan for.
package modelgraph

import (
	"fmt"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/llama3"
)

// inputs of a microbatch.
type inputs struct{ tokens, labels, positions, documentStart, scale graph.Value }

// Model is what is planned for: forward and backward, and gradients that are stored.
type Model struct {
	Name          string
	batch, tokens int
	build         func(b *graph.Builder, in inputs, layer checkpoint.Policy)
}

// Debug are models of which a plan is made and run at once.
func Debug() []Model {
	return []Model{
		{"llama3 debugmodel", 4, 256, llama("debugmodel")},
		{"deepseek_v3 debugmodel", 4, 256, deepSeek("debugmodel")},
	}
}

// Large are models to be planned for only.
func Large() []Model {
	return []Model{
		{"llama3 8B", 1, 8192, llama("8B")},
		{"deepseek_v3 16B", 4, 4096, deepSeek("16B")},
		synthetic(20_000),
	}
}

func llama(flavor string) func(b *graph.Builder, in inputs, layer checkpoint.Policy) {
	return func(b *graph.Builder, in inputs, layer checkpoint.Policy) {
		c, err := llama3.Flavor(flavor)
		if err != nil {
			b.Fail("%v", err)
			return
		}
		buildLlama(b, in, c, layer)
	}
}

func buildLlama(b *graph.Builder, in inputs, c llama3.Config, layer checkpoint.Policy) {
	llama3.Build(b, c, llama3.Inputs{Tokens: in.tokens, Labels: in.labels, Positions: in.positions,
		DocumentStart: in.documentStart, Scale: in.scale}, func(int) checkpoint.Policy { return layer })
}

func deepSeek(flavor string) func(b *graph.Builder, in inputs, layer checkpoint.Policy) {
	return func(b *graph.Builder, in inputs, layer checkpoint.Policy) {
		c, err := deepseekv3.Flavor(flavor)
		if err != nil {
			b.Fail("%v", err)
			return
		}
		deepseekv3.Build(b, c, deepseekv3.Inputs{Tokens: in.tokens, Labels: in.labels, Positions: in.positions,
			DocumentStart: in.documentStart, Scale: in.scale}, deepseekv3.Options{Layer: layer, Training: true})
	}
}

// synthetic is a Llama of as many narrow layers as make a number of ops.
func synthetic(ops int) Model {
	const perLayer = 79
	return Model{fmt.Sprintf("synthetic, %d ops", ops), 1, 64, func(b *graph.Builder, in inputs, layer checkpoint.Policy) {
		buildLlama(b, in, llama3.Config{Dim: 64, Layers: ops / perLayer, Heads: 4, KVHeads: 2, HeadDim: 16, Hidden: 160, Vocab: 256,
			NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, Dropout: 0.1}, layer)
	}}
}

// Graph builds the step on a device, with a policy for each layer.
func (m Model) Graph(dev device.Device, layer checkpoint.Policy) (*graph.Graph, error) {
	b := graph.New(graph.NewStore(dev, graph.StoreOptions{Seed: 1}))
	ids := func(name string) graph.Value { return b.Input(name, device.Int32, m.batch, m.tokens) }
	m.build(b, inputs{ids("tokens"), ids("labels"), ids("positions"), ids("document_start"), b.Input("scale", device.Float32)}, layer)
	parameters := b.Parameters()
	for i, grad := range b.Backward(parameters...) {
		b.Assign(b.Scratch("gradient."+parameters[i].Name(), device.Float32, grad.Spec().Shape...), grad)
	}
	return b.Graph()
}
