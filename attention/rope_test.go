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

// rotateByHand turns pair i of every head by position · theta^(−2i/dims).
func rotateByHand(x []float64, shape [4]int, position func(b, t int) int, r attention.RoPE) []float64 {
	heads, width := shape[2], shape[3]
	out := append([]float64(nil), x...)
	for row := range len(x) / width {
		token := row / heads
		p := float64(position(token/shape[1], token%shape[1]))
		for i := range r.Dims / 2 {
			first, second := 2*i, 2*i+1
			if r.Layout == device.RotateHalf {
				first, second = i, i+r.Dims/2
			}
			sin, cos := math.Sincos(p * math.Pow(r.Theta, -2*float64(i)/float64(r.Dims)))
			a, b := x[row*width+first], x[row*width+second]
			out[row*width+first], out[row*width+second] = a*cos-b*sin, a*sin+b*cos
		}
	}
	return out
}

func TestRoPEByHand(t *testing.T) {
	shape := [4]int{2, 5, 3, 8}
	positions := []int32{0, 1, 2, 0, 1, 7, 6, 5, 4, 3}
	for _, layout := range []device.RoPELayout{device.AdjacentPairs, device.RotateHalf} {
		for _, dims := range []int{8, 6} {
			for _, given := range []bool{false, true} {
				r := attention.RoPE{Theta: 10000, Dims: dims, Layout: layout}
				store := newStore(t)
				b := graph.New(store)
				x := b.Parameter("x", device.Float64, graph.Normal{Std: 1}, shape[:]...)
				at, position := graph.None, func(_, t int) int { return t }
				if given {
					r.MaxPositions = 8
					at = b.Input("positions", device.Int32, 2, 5)
					position = func(b, t int) int { return int(positions[5*b+t]) }
				}
				b.Output("y", r.Rotate(b, x, at))
				m := newMachine(t, b)
				if given {
					check(t, graph.Feed(m, "positions", positions))
				}
				run(t, m)
				near(t, "rotated", floats(m, "y"), rotateByHand(values(store, "x"), shape, position, r))
			}
		}
	}
}

// TestRoPEIsRelative checks what rotary embeddings are for: the product of two
// rotated vectors depends on the distance of their positions alone.
func TestRoPEIsRelative(t *testing.T) {
	store := newStore(t)
	b := graph.New(store)
	same := graph.Computed(func(t device.Tensor) {
		for i := range device.Elements[float64](t) {
			device.Elements[float64](t)[i] = math.Sin(float64(i % 8))
		}
	})
	x := b.State("x", device.Float64, same, 1, 20, 1, 8)
	b.Output("y", attention.RoPE{Theta: 500}.Rotate(b, x, graph.None))
	m := newMachine(t, b)
	run(t, m)
	y := floats(m, "y")
	product := func(i, j int) (sum float64) {
		for k := range 8 {
			sum += y[8*i+k] * y[8*j+k]
		}
		return sum
	}
	for i := range 13 {
		near(t, "product at a distance of 7", []float64{product(i, i+7)}, []float64{product(0, 7)})
	}
}

func TestRoPERefusesPositions(t *testing.T) {
	b := graph.New(newStore(t))
	x := b.Scope("attention").Input("x", device.Float64, 1, 2, 1, 4)
	b.Output("y", attention.RoPE{Theta: 100, MaxPositions: 3}.Rotate(b.Scope("attention"), x, b.Input("positions", device.Int32, 1, 2)))
	m := newMachine(t, b)
	check(t, graph.Feed(m, "positions", []int32{2, 3}))
	err := m.Run(context.Background(), graph.RunOptions{Step: 1})
	if err == nil || !strings.Contains(err.Error(), "attention.rope:0: rope: position 3 at index 1 is outside [0, 3)") {
		t.Errorf("error %v", err)
	}
}

func TestTablesAreShared(t *testing.T) {
	store := newStore(t)
	for _, tokens := range []int{4, 4, 6} {
		b := graph.New(store)
		for layer := range 3 {
			x := b.Scope("layers", layer).Input("x", device.Float32, 1, tokens, 1, 4)
			b.Output(x.Name(), attention.RoPE{Theta: 100}.Rotate(b.Scope("layers", layer), x, graph.None))
		}
		b.Scope("other").Output("other", attention.RoPE{Theta: 200}.Rotate(b, b.Input("x", device.Float32, 1, tokens, 1, 4), graph.None))
		newMachine(t, b)
	}
	// Two lengths of two tables of cos and sin, and of positions.
	if n := len(store.Variables()); n != 2*(2*2+1) {
		t.Errorf("%d constants, want 10", n)
	}
	for _, v := range store.Variables() {
		if v.Kind != graph.Fixed {
			t.Errorf("%s is a %v", v.Name, v.Kind)
		}
	}
}
