package train

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/generate"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/moe"
)

func init() {
	families["deepseek_v3"] = func(flavor string, dtype device.DType) (Model, error) {
		c, err := deepseekv3.Flavor(flavor)
		c.DType = dtype
		return DeepSeekV3(flavor, c), err
	}
}

// DeepSeekV3 makes a Model of a deepseekv3 configuration; flavor is its name in
// reports. The dtype must be the one that is trained.
func DeepSeekV3(flavor string, c deepseekv3.Config) Balanced { return deepSeekV3Model{c, flavor} }

type deepSeekV3Model struct {
	config deepseekv3.Config
	flavor string
}

func (m deepSeekV3Model) Name() string                     { return "deepseek_v3 " + m.flavor }
func (m deepSeekV3Model) Vocab() int                       { return m.config.Vocab }
func (m deepSeekV3Model) Parameters() int64                { return m.config.Parameters() }
func (m deepSeekV3Model) FLOPsPerToken(seqLen int) float64 { return m.config.FLOPsPerToken(seqLen) }
func (m deepSeekV3Model) Experts() int                     { return m.config.Experts }
func (m deepSeekV3Model) BalanceStep() float64             { return m.config.LoadBalance }

func (m deepSeekV3Model) Shared() []Extent {
	c := m.config
	list := []Extent{{"heads", c.Heads}}
	if c.DenseLayers > 0 {
		list = append(list, Extent{"hidden units of a feed-forward", c.Hidden})
	}
	if c.DenseLayers < c.Layers {
		list = append(list, Extent{"hidden units of an expert", c.ExpertHidden})
	}
	return list
}

func (m deepSeekV3Model) Build(b *graph.Builder, in Inputs, p Policies) {
	o := deepseekv3.Options{Layer: p.Layer, Attention: p.Attention, MoE: p.MoE, Training: in.Training}
	if in.Experts != nil {
		o.Dispatcher = moe.AllToAll{Group: in.Experts}
	}
	deepseekv3.Build(b, m.config, deepseekv3.Inputs{
		Tokens: in.Tokens, Labels: in.Labels, Positions: in.Positions, DocumentStart: in.DocumentStart, Scale: in.Scale,
		Loss: in.Loss.of(in),
	}, o)
}

func (m deepSeekV3Model) Logits(b *graph.Builder, in generate.Inputs) graph.Value {
	return deepseekv3.Logits(b, m.config, deepseekv3.Inputs{Tokens: in.Tokens, Positions: in.Positions, Cache: in.Cache}, in.Row)
}
