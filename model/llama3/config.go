package llama3

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
)

// Config is the shape of a model. Start from a [Flavor] and change what differs.
type Config struct {
	// Width of the residual stream.
	Dim int
	// Number of transformer blocks.
	Layers int
	// Query heads, and the key and value heads they share: Heads is a multiple of
	// KVHeads (Ainslie et al. 2023).
	Heads, KVHeads int
	// Width of one head; even, since RoPE turns pairs.
	HeadDim int
	// Width inside a feed-forward.
	Hidden int
	// Number of token ids.
	Vocab int
	// Added to the mean square in every RMSNorm.
	NormEps float64
	// Rotary positions. A MaxPositions of 0 makes tables for the sequence that is
	// built, which is enough: positions count from the start of a document.
	RoPE attention.RoPE
	// RMSNorm of every query and key head before RoPE. No Llama 3 has it; it
	// steadies small models at a high learning rate (Qwen3 has it).
	QKNorm bool
	// Use the embedding as output matrix, as the 1B and 3B of Llama 3.2 do.
	TieEmbedding bool
	// Probability that an element of a branch is zeroed before it joins the
	// residual stream. Set it to 0 to evaluate.
	Dropout float64
	// Type of parameters and activations; Float32 if it is not set.
	DType device.DType
}

// flavors are the models of Meta's Llama 3.1 (8B, 70B, 405B) and 3.2 (1B, 3B)
// as their releases and torchtitan define them, and two small ones.
var flavors = map[string]Config{
	// torchtitan's model for tests: 6,163,712 parameters.
	"debugmodel": llama(256, 6, 16, 16, 16, 768, 2048),
	// For bytes, and the end of a document: small enough to learn to spell in a minute
	// on two cores.
	"quickstart": steady(llama(128, 4, 4, 2, 32, 384, 257)),
	"1B":         small(llama(2048, 16, 32, 8, 64, 8192, 128256)),
	"3B":         small(llama(3072, 28, 24, 8, 128, 8192, 128256)),
	"8B":         llama(4096, 32, 32, 8, 128, 14336, 128256),
	"70B":        llama(8192, 80, 64, 8, 128, 28672, 128256),
	"405B":       llama(16384, 126, 128, 8, 128, 53248, 128256),
}

func llama(dim, layers, heads, kvHeads, headDim, hidden, vocab int) Config {
	return Config{Dim: dim, Layers: layers, Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Hidden: hidden,
		Vocab: vocab, NormEps: 1e-5, RoPE: attention.RoPE{Theta: 5e5, Scaling: attention.Llama3Scaling()}}
}

// small is what Llama 3.2 does differently.
func small(c Config) Config {
	c.TieEmbedding = true
	c.RoPE.Scaling.Factor = 32
	return c
}

// steady takes a learning rate of a hundredth.
func steady(c Config) Config {
	c.QKNorm = true
	return c
}

// Flavors are the names that [Flavor] knows, sorted.
func Flavors() []string { return slices.Sorted(maps.Keys(flavors)) }

// Flavor returns the model of that name.
func Flavor(name string) (Config, error) {
	c, ok := flavors[name]
	if !ok {
		return c, fmt.Errorf("llama3: no flavor %q: have %s", name, strings.Join(Flavors(), ", "))
	}
	return c, nil
}

// Validate says what is impossible about c, which value, and what would do.
func (c Config) Validate() error {
	for _, x := range []struct {
		name  string
		value int
	}{
		{"Dim", c.Dim}, {"Layers", c.Layers}, {"Heads", c.Heads}, {"KVHeads", c.KVHeads}, {"HeadDim", c.HeadDim},
		{"Hidden", c.Hidden}, {"Vocab", c.Vocab},
	} {
		if x.value < 1 {
			return fmt.Errorf("llama3: %s is %d: want 1 or more", x.name, x.value)
		}
	}
	// Comparisons are written so that NaN fails them.
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("llama3: %d Heads cannot share %d KVHeads: want a multiple", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0 && c.RoPE.Dims == 0:
		return fmt.Errorf("llama3: HeadDim is %d: RoPE turns pairs, want an even number", c.HeadDim)
	case !(c.NormEps > 0):
		return fmt.Errorf("llama3: NormEps is %g: want more than 0", c.NormEps)
	case !(c.RoPE.Theta > 0):
		return fmt.Errorf("llama3: RoPE.Theta is %g: want more than 0, such as 500000", c.RoPE.Theta)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return fmt.Errorf("llama3: Dropout is %g: want 0 or more and less than 1", c.Dropout)
	case c.DType != device.Invalid && c.DType != device.Float32 && c.DType != device.Float64:
		return fmt.Errorf("llama3: DType is %v: want float32 or float64", c.DType)
	}
	return nil
}
