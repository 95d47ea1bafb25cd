package attention_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/gradcheck"
)

func smallMLA(qLoRA int) attention.MLA {
	return attention.MLA{Heads: 2, QLoRA: qLoRA, KVLoRA: 5, NoPEDims: 3, RoPEDims: 4, ValueDim: 2,
		RoPE:   attention.RoPE{Theta: 1e4, YaRN: attention.YaRN{Factor: 40, OriginalPositions: 64}},
		MScale: 0.7, Mask: attention.Mask{Causal: true}, Init: graph.Normal{Std: 0.4}, OutputInit: graph.Normal{Std: 0.4}}
}

func TestMLAGradients(t *testing.T) {
	for _, qLoRA := range []int{0, 3} {
		t.Run(fmt.Sprint("q_lora=", qLoRA), func(t *testing.T) {
			gradcheck.Run(t, gradcheck.Case{
				Inputs: [][]int{{2, 4, 6}},
				Build: func(b *graph.Builder, _ device.DType, in []graph.Value) []graph.Value {
					return []graph.Value{smallMLA(qLoRA).Build(b, in[0])}
				},
			})
		})
	}
}

// The corners of the ramp for the head of DeepSeek-V3, computed by hand: pair 10 is the
// last whose frequency is kept, pair 23 the first that is divided whole.
func TestYaRNFrequencies(t *testing.T) {
	f := attention.Frequencies(attention.RoPE{Theta: 1e4, Dims: 64, YaRN: attention.YaRN{Factor: 40, OriginalPositions: 4096}})
	for i, got := range f {
		plain := math.Pow(1e4, -2*float64(i)/64)
		want := plain
		switch {
		case i >= 23:
			want = plain / 40
		case i > 10:
			ramp := float64(i-10) / 13
			want = plain/40*ramp + plain*(1-ramp)
		}
		if math.Abs(got-want) > 1e-15 {
			t.Errorf("pair %d: %v, want %v", i, got, want)
		}
	}
}

// research figures: 16B has mscale 0.70 and the scale 0.114252, 671B 1.0 and 0.135234.
func TestMLAScale(t *testing.T) {
	for mscale, want := range map[float64]float64{0.70: 0.114252, 1.0: 0.135234} {
		c := attention.MLA{NoPEDims: 128, RoPEDims: 64, MScale: mscale, RoPE: attention.RoPE{YaRN: attention.YaRN{Factor: 40}}}
		if got := attention.ScaleOf(c); math.Abs(got-want) > 5e-7 {
			t.Errorf("mscale %v: scale %v, want %v", mscale, got, want)
		}
	}
}

func TestMLAErrors(t *testing.T) {
	for want, change := range map[string]func(*attention.MLA){
		"set Heads and KVLoRA":          func(c *attention.MLA) { c.KVLoRA = 0 },
		"an even RoPEDims":              func(c *attention.MLA) { c.RoPEDims = 3 },
		"RoPE.Dims 2 differs":           func(c *attention.MLA) { c.RoPE.Dims = 2 },
		"want Factor and OriginalPosit": func(c *attention.MLA) { c.RoPE.YaRN.OriginalPositions = 0 },
		"want one of them":              func(c *attention.MLA) { c.RoPE.Scaling = attention.Llama3Scaling() },
	} {
		c := smallMLA(0)
		change(&c)
		b := graph.New(graph.NewStore(nil, graph.StoreOptions{}))
		c.Build(b, b.Input("x", device.Float32, 2, 4, 6))
		if err := b.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v: want it to contain %q", err, want)
		}
	}
}
