package deepseekv3

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/moe"
)

// Config is the shape of a model. Start from a [Flavor] and change what differs.
type Config struct {
	// Width of the residual stream, number of blocks, and how many of them, from the
	// first on, have a dense feed-forward.
	Dim, Layers, DenseLayers int
	// Number of token ids.
	Vocab int
	// Width inside a dense feed-forward.
	Hidden int

	// Attention heads; widths of the latent query (0: none) and key-value vectors, of
	// the parts of a head without and with position, and of a value.
	Heads, QLoRA, KVLoRA         int
	NoPEDims, RoPEDims, ValueDim int
	// Rotary positions, and how much YaRN sharpens attention.
	RoPE   attention.RoPE
	MScale float64

	// Routed experts, how many each token goes to, and the width inside one.
	Experts, TopK, ExpertHidden int
	// Experts that see every token.
	SharedExperts int
	// What makes the weights of chosen experts, see moe.Router.
	Score                 moe.Score
	RouteNorm             bool
	RouteScale            float64
	Groups, LimitedGroups int
	// What the router's bias moves by in one optimizer step; 0 means no bias.
	LoadBalance float64
	// Send tokens to experts in turn, whatever the router says. For experiments.
	ForceBalance bool

	// Added to the mean square in every RMSNorm.
	NormEps float64
	// Type of parameters and activations; Float32 if it is not set.
	DType device.DType
}

// flavors are torchtitan's, and a small one.
var flavors = map[string]Config{
	// For bytes: learns to spell in half a minute on two cores. It is so narrow that neither
	// attention nor the experts alone do better than bigrams in that time.
	"quickstart": {
		Dim: 24, Layers: 1, Vocab: 257,
		Heads: 4, KVLoRA: 64, NoPEDims: 32, RoPEDims: 16, ValueDim: 8, RoPE: attention.RoPE{Theta: 1e4},
		Experts: 8, TopK: 2, ExpertHidden: 768, SharedExperts: 1, Score: moe.Sigmoid, RouteNorm: true, RouteScale: 1,
		LoadBalance: 1e-3, NormEps: 1e-5,
	},
	// torchtitan's model for tests: 33,014,016 parameters.
	"debugmodel": latent(0.70, Config{
		Dim: 256, Layers: 6, DenseLayers: 1, Vocab: 2048, Hidden: 1024, Heads: 16,
		Experts: 8, TopK: 3, ExpertHidden: 256, SharedExperts: 2, RouteScale: 1,
	}),
	"16B": latent(0.70, Config{
		Dim: 2048, Layers: 27, DenseLayers: 1, Vocab: 102400, Hidden: 10944, Heads: 16,
		Experts: 64, TopK: 6, ExpertHidden: 1408, SharedExperts: 2, RouteScale: 1,
	}),
	"236B": latent(1, Config{
		Dim: 5120, Layers: 60, DenseLayers: 1, Vocab: 102400, Hidden: 12288, Heads: 128, QLoRA: 1536,
		Experts: 160, TopK: 6, ExpertHidden: 1536, SharedExperts: 2, RouteScale: 16, Groups: 8, LimitedGroups: 3,
	}),
	"671B": latent(1, Config{
		Dim: 7168, Layers: 61, DenseLayers: 3, Vocab: 129280, Hidden: 18432, Heads: 128, QLoRA: 1536,
		Experts: 256, TopK: 8, ExpertHidden: 2048, SharedExperts: 1, Score: moe.Sigmoid, RouteNorm: true, RouteScale: 2.5,
		Groups: 8, LimitedGroups: 4,
	}),
}

// latent fills in what all of DeepSeek's models share.
func latent(mscale float64, c Config) Config {
	c.KVLoRA, c.NoPEDims, c.RoPEDims, c.ValueDim = 512, 128, 64, 128
	c.RoPE = attention.RoPE{Theta: 1e4, YaRN: attention.YaRN{Factor: 40, OriginalPositions: 4096}}
	c.MScale, c.LoadBalance, c.NormEps = mscale, 1e-3, 1e-5
	return c
}

// Flavors are the names that [Flavor] knows, sorted.
func Flavors() []string { return slices.Sorted(maps.Keys(flavors)) }

// Flavor returns the model of that name.
func Flavor(name string) (Config, error) {
	c, ok := flavors[name]
	if !ok {
		return c, fmt.Errorf("deepseekv3: no flavor %q: have %s", name, strings.Join(Flavors(), ", "))
	}
	return c, nil
}

// Validate says what is impossible about c, which value, and what would do. What
// concerns one module alone, that module says when the model is built.
func (c Config) Validate() error {
	for _, x := range []struct {
		name         string
		value, least int
	}{
		{"Dim", c.Dim, 1}, {"Layers", c.Layers, 1}, {"DenseLayers", c.DenseLayers, 0}, {"Vocab", c.Vocab, 1},
		{"Heads", c.Heads, 1}, {"SharedExperts", c.SharedExperts, 0},
	} {
		if x.value < x.least {
			return fmt.Errorf("deepseekv3: %s is %d: want %d or more", x.name, x.value, x.least)
		}
	}
	switch {
	case c.DenseLayers > c.Layers:
		return fmt.Errorf("deepseekv3: %d DenseLayers of %d Layers: want no more than all", c.DenseLayers, c.Layers)
	case c.DenseLayers > 0 && c.Hidden < 1:
		return fmt.Errorf("deepseekv3: Hidden is %d: want 1 or more for the %d dense layers", c.Hidden, c.DenseLayers)
	case c.DenseLayers < c.Layers && (c.Experts < 1 || c.ExpertHidden < 1):
		return fmt.Errorf("deepseekv3: %d Experts with an ExpertHidden of %d: want 1 or more of both", c.Experts, c.ExpertHidden)
	case !(c.NormEps > 0):
		return fmt.Errorf("deepseekv3: NormEps is %g: want more than 0", c.NormEps)
	case !(c.LoadBalance >= 0):
		return fmt.Errorf("deepseekv3: LoadBalance is %g: want 0 or more", c.LoadBalance)
	case c.DType != device.Invalid && c.DType != device.Float32 && c.DType != device.Float64:
		return fmt.Errorf("deepseekv3: DType is %v: want float32 or float64", c.DType)
	}
	return nil
}
