package llama3_test

import (
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/internal/modeltest"
	"github.com/lethe-go/lethe/model/llama3"
)

// goldenConfig is a model as testdata/generate.py writes it.
type goldenConfig struct {
	Dim, Layers, Heads, KVHeads, HeadDim, Hidden, Vocab, MaxPositions, RopeOriginal int
	NormEps, RopeTheta, RopeFactor, RopeLowFreq, RopeHighFreq                       float64
	QKNorm                                                                          bool
}

func (c goldenConfig) model() llama3.Config {
	return llama3.Config{
		Dim: c.Dim, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Hidden: c.Hidden,
		Vocab: c.Vocab, NormEps: c.NormEps, QKNorm: c.QKNorm,
		RoPE: attention.RoPE{Theta: c.RopeTheta, MaxPositions: c.MaxPositions, Scaling: attention.Scaling{
			Factor: c.RopeFactor, LowFrequency: c.RopeLowFreq, HighFrequency: c.RopeHighFreq, OriginalPositions: c.RopeOriginal}},
	}
}

func goldenSetup(t *testing.T, g *modeltest.Golden[goldenConfig], dtype device.DType) modeltest.Setup {
	c := g.Config.model()
	s := g.Setup(t, c.Vocab, dtype)
	s.Build = build(c, nil, dtype)
	return s
}

// build adds the model c of a dtype.
func build(c llama3.Config, policy func(layer int) checkpoint.Policy, dtype device.DType) func(*graph.Builder, modeltest.Inputs) {
	c.DType = dtype
	return func(b *graph.Builder, in modeltest.Inputs) {
		llama3.Build(b, c, llama3.Inputs{
			Tokens: in.Tokens, Labels: in.Labels, Positions: in.Positions, DocumentStart: in.DocumentStart, Scale: in.Scale,
		}, policy)
	}
}
