package attention_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// attender is a module under test, as a function of what the cache and the mask are.
type attender func(b *graph.Builder, x, positions graph.Value, m attention.Mask, c *attention.Cache) graph.Value

var attenders = map[string]attender{
	"gqa": func(b *graph.Builder, x, positions graph.Value, m attention.Mask, c *attention.Cache) graph.Value {
		return attention.GQA{Heads: 4, KVHeads: 2, RoPE: attention.RoPE{Theta: 100}, Positions: positions, Mask: m, Cache: c}.Build(b, x)
	},
	"mla": func(b *graph.Builder, x, positions graph.Value, m attention.Mask, c *attention.Cache) graph.Value {
		return attention.MLA{Heads: 4, QLoRA: 5, KVLoRA: 6, NoPEDims: 4, RoPEDims: 2, ValueDim: 3, RoPE: attention.RoPE{Theta: 100},
			Positions: positions, Mask: m, Cache: c}.Build(b, x)
	},
}

// TestCacheUnderEveryMask gives two sequences to a module at once, and then in parts
// behind a cache.
func TestCacheUnderEveryMask(t *testing.T) {
	const batch, tokens, width = 2, 11, 8
	for name, build := range attenders {
		for _, mask := range []attention.Mask{{Causal: true}, {Causal: true, Window: 3}, {Causal: true, Block: 4}} {
			store := newStore(t)
			whole := partOf(t, store, build, mask, nil, tokens)
			want := whole.run(t, 0)
			for _, parts := range [][]int{{11}, {5, 6}, {1, 2, 1, 7}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}} {
				first := 0
				for _, n := range parts {
					p := partOf(t, store, build, mask, &attention.Cache{Length: tokens}, n)
					got := p.run(t, first)
					for b := range batch {
						row := want[(b*tokens+first)*width : (b*tokens+first+n)*width]
						near(t, name, got[b*n*width:(b+1)*n*width], row)
					}
					first += n
				}
			}
		}
	}
}

// part is a module over some tokens of two sequences.
type part struct {
	*graph.Machine
	tokens int
}

func partOf(t *testing.T, s *graph.Store, build attender, m attention.Mask, c *attention.Cache, tokens int) part {
	t.Helper()
	b := graph.New(s)
	positions := b.Input("positions", device.Int32, 2, tokens)
	if c != nil {
		c.Position = b.HostInput("start", device.Int32)
	}
	b.Output("y", build(b.Scope("attention"), b.Input("x", device.Float64, 2, tokens, 8), positions, m, c))
	return part{newMachine(t, b), tokens}
}

// run computes the tokens from the first on.
func (p part) run(t *testing.T, first int) []float64 {
	t.Helper()
	p.feed(first)
	run(t, p.Machine)
	return floats(p.Machine, "y")
}

func (p part) feed(first int) {
	x, positions := device.Elements[float64](p.Input("x")), device.Elements[int32](p.Input("positions"))
	for b := range 2 {
		for i := range p.tokens {
			positions[b*p.tokens+i] = int32(first + i)
			for j := range 8 {
				x[(b*p.tokens+i)*8+j] = math.Sin(float64(100*b + 8*(first+i) + j))
			}
		}
	}
	if start := p.Input("start"); !start.IsZero() {
		device.Elements[int32](start)[0] = int32(first)
	}
}

func TestCacheRefusals(t *testing.T) {
	for name, build := range attenders {
		for _, x := range []struct {
			want string
			make func(b *graph.Builder, c *attention.Cache, positions *graph.Value, m *attention.Mask)
		}{
			{"a cache of 3 positions for 4 tokens", func(_ *graph.Builder, c *attention.Cache, _ *graph.Value, _ *attention.Mask) { c.Length = 3 }},
			{"want int32[]@host", func(b *graph.Builder, c *attention.Cache, _ *graph.Value, _ *attention.Mask) {
				c.Position = b.Input("elsewhere", device.Int32)
			}},
			{"no Positions", func(_ *graph.Builder, _ *attention.Cache, p *graph.Value, _ *attention.Mask) { *p = graph.None }},
			{"mask with borders of documents", func(_ *graph.Builder, _ *attention.Cache, p *graph.Value, m *attention.Mask) {
				m.DocumentStart, m.DocumentEnd = *p, *p
			}},
		} {
			b := graph.New(newStore(t))
			c := &attention.Cache{Length: 9, Position: b.HostInput("start", device.Int32)}
			positions, mask := b.Input("positions", device.Int32, 1, 4), attention.Mask{Causal: true}
			x.make(b, c, &positions, &mask)
			build(b, b.Input("x", device.Float64, 1, 4, 8), positions, mask, c)
			if err := b.Err(); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: %v, want %q", name, err, x.want)
			}
		}
	}
}

func TestCacheIsNotOverrun(t *testing.T) {
	for name, build := range attenders {
		p := partOf(t, newStore(t), build, attention.Mask{Causal: true}, &attention.Cache{Length: 6}, 4)
		for _, first := range []int32{3, -1} {
			p.feed(0)
			device.Elements[int32](p.Input("start"))[0] = first
			err := p.Run(context.Background(), graph.RunOptions{Step: 1})
			if err == nil || !strings.Contains(err.Error(), "outside the cache of 6") {
				t.Errorf("%s: from %d on: %v", name, first, err)
			}
		}
	}
}
