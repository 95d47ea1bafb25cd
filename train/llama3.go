package train

import (
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/generate"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
)

func init() {
	families["llama3"] = func(flavor string, dtype device.DType) (Model, error) {
		c, err := llama3.Flavor(flavor)
		c.DType = dtype
		return Llama3(flavor, c), err
	}
}

// Llama3 makes a Model of a llama3 configuration; flavor is its name in reports.
// The dtype must be the one that is trained.
func Llama3(flavor string, c llama3.Config) Model { return llama3Model{c, flavor} }

type llama3Model struct {
	config llama3.Config
	flavor string
}

func (m llama3Model) Name() string                     { return "llama3 " + m.flavor }
func (m llama3Model) Vocab() int                       { return m.config.Vocab }
func (m llama3Model) Parameters() int64                { return m.config.Parameters() }
func (m llama3Model) FLOPsPerToken(seqLen int) float64 { return m.config.FLOPsPerToken(seqLen) }

func (m llama3Model) Shared() []Extent {
	return []Extent{{"heads", m.config.Heads}, {"key and value heads", m.config.KVHeads}, {"hidden units of a feed-forward", m.config.Hidden}}
}

func (m llama3Model) Build(b *graph.Builder, in Inputs, p Policies) {
	if p.Attention != nil || p.MoE != nil {
		b.Fail("activation_checkpoint.attention and .moe are for models with mixtures of experts, not for llama3; set activation_checkpoint.mode")
		return
	}
	c := m.config
	if !in.Training {
		c.Dropout = 0
	}
	llama3.Build(b, c, llama3.Inputs{
		Tokens: in.Tokens, Labels: in.Labels, Positions: in.Positions, DocumentStart: in.DocumentStart, Scale: in.Scale,
		Loss: in.Loss.of(in),
	}, func(int) checkpoint.Policy { return p.Layer })
}

func (m llama3Model) Logits(b *graph.Builder, in generate.Inputs) graph.Value {
	return llama3.Logits(b, m.config, llama3.Inputs{Tokens: in.Tokens, Positions: in.Positions, Cache: in.Cache}, in.Row)
}
