package attention_test

import (
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

func TestImpossibleConfigs(t *testing.T) {
	rope := attention.RoPE{Theta: 10000}
	gqa := func(c attention.GQA) func(b *graph.Builder) {
		return func(b *graph.Builder) {
			c.Build(b.Scope("layers", 1, "attention"), b.Input("x", device.Float32, 2, 6, 24))
		}
	}
	fused := func(q, k, v []int) func(b *graph.Builder) {
		return func(b *graph.Builder) {
			attention.Fused(b, b.Input("q", device.Float32, q...), b.Input("k", device.Float32, k...), b.Input("v", device.Float32, v...), attention.Mask{}, 0)
		}
	}
	cases := map[string]struct {
		build func(b *graph.Builder)
		want  []string
	}{
		"no heads": {gqa(attention.GQA{}), []string{"layers.1.attention: gqa: 0 heads", "set Heads to 1 or more"}},
		"heads and key heads": {gqa(attention.GQA{Heads: 6, KVHeads: 4}),
			[]string{"gqa: 6 heads cannot share 4 key heads: want Heads to be a multiple of KVHeads"}},
		"width and heads": {gqa(attention.GQA{Heads: 5}), []string{"gqa: width 24 does not divide into 5 heads", "set HeadDim"}},
		"odd heads":       {gqa(attention.GQA{Heads: 8, RoPE: rope}), []string{"rope: 3 rotated dimensions cannot form pairs"}},
		"too many dimensions": {gqa(attention.GQA{Heads: 6, RoPE: attention.RoPE{Theta: 1, Dims: 6}}),
			[]string{"rope: 6 rotated dimensions of heads of width 4"}},
		"negative theta": {gqa(attention.GQA{Heads: 6, RoPE: attention.RoPE{Theta: -1}}), []string{"rope: theta -1"}},
		"short table": {gqa(attention.GQA{Heads: 6, RoPE: attention.RoPE{Theta: 1, MaxPositions: 4}}),
			[]string{"rope: a table of 4 positions for sequences of 6: set MaxPositions to 6 or more"}},
		"half a scaling": {gqa(attention.GQA{Heads: 6, RoPE: attention.RoPE{Theta: 1, Scaling: attention.Scaling{Factor: 8}}}),
			[]string{"rope: scaling {Factor:8 LowFrequency:0", "want all above 0"}},
		"unknown layout":  {gqa(attention.GQA{Heads: 6, RoPE: attention.RoPE{Theta: 1, Layout: 7}}), []string{"rope: unknown layout 7"}},
		"negative window": {gqa(attention.GQA{Heads: 6, Mask: attention.Mask{Window: -1}}), []string{"gqa: mask with window -1"}},
		"rank": {
			func(b *graph.Builder) { attention.GQA{Heads: 2}.Build(b, b.Input("x", device.Float32, 6, 24)) },
			[]string{"gqa: want x [batch, tokens, width], have float32[6 24]"},
		},
		"ids": {
			func(b *graph.Builder) {
				attention.GQA{Heads: 2}.Build(b.Scope("a"), b.Input("x", device.Int32, 1, 6, 24))
			},
			[]string{"a.wq: matmul: want float32 or float64, have int32[1 6 24]"},
		},
		"nothing": {
			func(b *graph.Builder) { attention.GQA{Heads: 2}.Build(b.Scope("a"), graph.None) },
			[]string{"a: gqa: the input is absent"},
		},
		"positions": {
			func(b *graph.Builder) {
				c := attention.GQA{Heads: 6, RoPE: rope, Positions: b.Input("positions", device.Int32, 6)}
				c.Build(b.Scope("a"), b.Input("x", device.Float32, 2, 6, 24))
			},
			[]string{"a: rope: positions are int32[6]: want int32[2 6]"},
		},
		"one border": {
			func(b *graph.Builder) {
				c := attention.GQA{Heads: 6, Mask: attention.Mask{DocumentEnd: b.Input("end", device.Int32, 2, 6)}}
				c.Build(b, b.Input("x", device.Float32, 2, 6, 24))
			},
			[]string{"set both DocumentStart and DocumentEnd, or neither"},
		},
		"borders": {
			func(b *graph.Builder) {
				border := b.Input("border", device.Int64, 2, 6)
				c := attention.GQA{Heads: 6, Mask: attention.Mask{DocumentStart: border, DocumentEnd: border}}
				c.Build(b, b.Input("x", device.Float32, 2, 6, 24))
			},
			[]string{"gqa: border is int64[2 6]: a border of documents must be int32[2 6]"},
		},
		"fused rank":    {fused([]int{2, 3, 4}, []int{2, 3, 4}, []int{2, 3, 4}), []string{"attention: want q, k and v of [batch, tokens, heads, width]"}},
		"fused batches": {fused([]int{2, 3, 4, 5}, []int{1, 3, 4, 5}, []int{1, 3, 4, 5}), []string{"attention: batches differ"}},
		"fused keys":    {fused([]int{2, 3, 4, 5}, []int{2, 3, 4, 5}, []int{2, 4, 4, 5}), []string{"attention: keys and values differ in tokens or heads"}},
		"fused widths":  {fused([]int{2, 3, 4, 5}, []int{2, 3, 4, 6}, []int{2, 3, 4, 5}), []string{"attention: queries and keys differ in width"}},
		"fused heads":   {fused([]int{2, 3, 4, 5}, []int{2, 3, 3, 5}, []int{2, 3, 3, 5}), []string{"attention: 4 query heads are no multiple of 3 key heads"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := graph.New(newStore(t))
			c.build(b)
			if b.Err() == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, "error_test.go:") {
				if !strings.Contains(b.Err().Error(), want) {
					t.Errorf("error %q does not say %q", b.Err(), want)
				}
			}
		})
	}
}
