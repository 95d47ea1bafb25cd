package deepseekv3_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/devicetest"
	"github.com/lethe-go/lethe/device/philox"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/internal/modeltest"
	"github.com/lethe-go/lethe/moe"
)

// goldenConfig is a model as testdata/generate.py writes it.
type goldenConfig struct {
	Dim, Layers, DenseLayers, Vocab, Heads, QLoRA, KVLoRA, NoPEDims, RoPEDims, ValueDim int
	Hidden, ExpertHidden, Experts, TopK, SharedExperts, Groups, LimitedGroups           int
	MScale, RouteScale, NormEps, RopeTheta, YarnFactor                                  float64
	YarnOriginal                                                                        int
	Score                                                                               string
	RouteNorm                                                                           bool

	// GateScale multiplies the gates, and Bias is the deviation of the biases of the
	// choice: see generate.py.
	GateScale, Bias float64
}

func (c goldenConfig) model(t *testing.T) deepseekv3.Config {
	score, err := moe.ParseScore(c.Score)
	if err != nil {
		t.Fatal(err)
	}
	return deepseekv3.Config{
		Dim: c.Dim, Layers: c.Layers, DenseLayers: c.DenseLayers, Vocab: c.Vocab, Hidden: c.Hidden,
		Heads: c.Heads, QLoRA: c.QLoRA, KVLoRA: c.KVLoRA, NoPEDims: c.NoPEDims, RoPEDims: c.RoPEDims, ValueDim: c.ValueDim,
		RoPE:   attention.RoPE{Theta: c.RopeTheta, YaRN: attention.YaRN{Factor: c.YarnFactor, OriginalPositions: c.YarnOriginal}},
		MScale: c.MScale, Experts: c.Experts, TopK: c.TopK, ExpertHidden: c.ExpertHidden, SharedExperts: c.SharedExperts,
		Score: score, RouteNorm: c.RouteNorm, RouteScale: c.RouteScale, Groups: c.Groups, LimitedGroups: c.LimitedGroups,
		LoadBalance: 1e-3, NormEps: c.NormEps,
	}
}

// prepare scales the gates and moves the biases as generate.py does.
func (c goldenConfig) prepare(seed uint64) func(*graph.Store) {
	return func(s *graph.Store) {
		for l := c.DenseLayers; l < c.Layers; l++ {
			at := fmt.Sprintf("layers.%d.moe", l)
			gate := s.Variable(at + ".router.gate.weight").Tensor()
			values := devicetest.Floats(gate)
			for i := range values {
				values[i] *= c.GateScale
			}
			devicetest.SetFloats(gate, values)
			devicetest.SetFloats(s.Variable(at+".router.expert_bias").Tensor(), c.biases(seed, at))
		}
	}
}

func (c goldenConfig) biases(seed uint64, at string) []float64 {
	out := make([]float64, c.Experts)
	key := philox.Key(seed, "golden.bias."+at, 0)
	for i := range out {
		out[i] = math.RoundToEven(philox.Normal(philox.Uint64(key, uint64(i), 0, 0))*c.Bias*256) / 256
	}
	return out
}

// build adds the model c of a dtype.
func build(c deepseekv3.Config, dtype device.DType, o deepseekv3.Options) func(*graph.Builder, modeltest.Inputs) {
	c.DType = dtype
	return func(b *graph.Builder, in modeltest.Inputs) {
		deepseekv3.Build(b, c, deepseekv3.Inputs{
			Tokens: in.Tokens, Labels: in.Labels, Positions: in.Positions, DocumentStart: in.DocumentStart, Scale: in.Scale,
		}, o)
	}
}

// loads are the tokens that each expert of a layer has received so far.
func loads(m *modeltest.Model, c deepseekv3.Config) map[string][]float64 {
	out := map[string][]float64{}
	for l := c.DenseLayers; l < c.Layers; l++ {
		at := fmt.Sprintf("layers.%d.moe", l)
		out[at] = devicetest.Floats(m.Store.Variable(at + ".tokens_per_expert").Tensor())
	}
	return out
}
