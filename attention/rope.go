package attention

import (
	"fmt"
	"math"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// RoPE describes rotary position embeddings: pairs of a head's elements are
// rotated by position · Theta^(−2i/Dims) for pair i. (Su et al. 2021, RoFormer,
// eq. 34.) With a Theta of 0 there are none.
type RoPE struct {
	Theta float64
	// Dims of a head, from the first on, are rotated; 0 means all of them.
	Dims int
	// Layout says which elements form a pair: AdjacentPairs for Llama's own
	// weights, RotateHalf for those of Hugging Face. Mixed up, it corrupts imported
	// weights silently.
	Layout device.RoPELayout
	// Scaling of frequencies for contexts longer than in pretraining; the zero
	// value scales nothing.
	Scaling Scaling
	// YaRN is another way to stretch the context; not both.
	YaRN YaRN
	// MaxPositions is the length of the table of angles; 0 means the sequence's.
	MaxPositions int
}

// Scaling is Llama 3.1's way to stretch the context: frequencies whose wavelength
// is over OriginalPositions / LowFrequency are divided by Factor, those under
// OriginalPositions / HighFrequency are kept, and the ones between are
// interpolated. (torchtitan and Hugging Face, rope type "llama3".) A Factor of 0
// means no scaling.
type Scaling struct {
	Factor, LowFrequency, HighFrequency float64
	OriginalPositions                   int
}

// Llama3Scaling returns the scaling of Llama 3.1: 8 times the 8192 tokens of
// Llama 3.
func Llama3Scaling() Scaling {
	return Scaling{Factor: 8, LowFrequency: 1, HighFrequency: 4, OriginalPositions: 8192}
}

// YaRN divides low frequencies by Factor and keeps high ones, with a ramp between
// the pairs that turn BetaSlow and BetaFast times in OriginalPositions tokens. (Peng
// et al. 2023, arXiv 2309.00071, §3.2, as in DeepSeek-V3.) A Factor of 0 means none.
type YaRN struct {
	Factor            float64
	OriginalPositions int
	BetaFast          float64 // 0 means 32
	BetaSlow          float64 // 0 means 1
}

// apply stretches the frequency of pair i.
func (y YaRN) apply(frequency, theta float64, dims, i int) float64 {
	if y.Factor == 0 {
		return frequency
	}
	if y.BetaFast == 0 {
		y.BetaFast = 32
	}
	if y.BetaSlow == 0 {
		y.BetaSlow = 1
	}
	// The pair that turns so many times.
	pair := func(turns float64) float64 {
		return float64(dims) * math.Log(float64(y.OriginalPositions)/(2*math.Pi*turns)) / (2 * math.Log(theta))
	}
	low := max(math.Floor(pair(y.BetaFast)), 0)
	high := min(math.Ceil(pair(y.BetaSlow)), float64(dims-1))
	if high == low {
		high += 0.001
	}
	ramp := min(max((float64(i)-low)/(high-low), 0), 1)
	return frequency/y.Factor*ramp + frequency*(1-ramp)
}

// Rotate returns x [B, T, H, D] rotated as positions (int32 [B, T]) say; with
// graph.None, row t of every sequence stands at position t. A position outside
// the table fails the run.
func (r RoPE) Rotate(b *graph.Builder, x, positions graph.Value) graph.Value {
	return r.rotateBehind(b, x, positions, 0)
}

// rotateBehind is Rotate for the elements of a head behind the first skip.
func (r RoPE) rotateBehind(b *graph.Builder, x, positions graph.Value, skip int) graph.Value {
	if r.Theta == 0 || b.Err() != nil {
		return x
	}
	if len(x.Shape()) != 4 {
		return b.Fail("rope: want x [batch, tokens, heads, width], have %v", x.Spec())
	}
	if r.Dims == 0 {
		r.Dims = x.Dim(3) - skip
	}
	if r.MaxPositions == 0 {
		r.MaxPositions = x.Dim(1)
	}
	if err := r.check(x.Dim(1), x.Dim(3)-skip, positions.IsNone()); err != nil {
		return b.Fail("rope: %v", err)
	}
	if positions.IsNone() {
		positions = consecutive(b, x.Dim(0), x.Dim(1))
	}
	cos, sin := r.table(b, x.Spec().DType)
	return b.Apply(rope{layout: r.Layout, skip: skip}, x, cos, sin, positions)
}

func (r RoPE) check(tokens, width int, consecutive bool) error {
	s := r.Scaling
	switch {
	case !(r.Theta > 0) || math.IsInf(r.Theta, 0):
		return fmt.Errorf("theta %g: want more than 0", r.Theta)
	case r.Dims < 0 || r.Dims > width:
		return fmt.Errorf("%d rotated dimensions of heads of width %d: want 0 (all) to %d", r.Dims, width, width)
	case r.Dims%2 != 0:
		return fmt.Errorf("%d rotated dimensions cannot form pairs: want an even head width, or set Dims", r.Dims)
	case r.Layout > device.RotateHalf:
		return fmt.Errorf("unknown layout %d: want device.AdjacentPairs or device.RotateHalf", r.Layout)
	case r.MaxPositions < 0 || consecutive && r.MaxPositions < tokens:
		return fmt.Errorf("a table of %d positions for sequences of %d: set MaxPositions to %d or more, or 0", r.MaxPositions, tokens, tokens)
	case r.YaRN != YaRN{} && s != Scaling{}:
		return fmt.Errorf("scaling %+v and YaRN %+v: want one of them", s, r.YaRN)
	case r.YaRN != YaRN{} && !(r.YaRN.Factor > 0 && r.YaRN.OriginalPositions > 0 && r.YaRN.BetaFast >= 0 && r.YaRN.BetaSlow >= 0):
		return fmt.Errorf("YaRN %+v: want Factor and OriginalPositions above 0", r.YaRN)
	case s == Scaling{}:
		return nil
	case !(s.Factor > 0 && s.LowFrequency > 0 && s.HighFrequency > s.LowFrequency && s.OriginalPositions > 0):
		return fmt.Errorf("scaling %+v: want all above 0 and HighFrequency above LowFrequency", s)
	}
	return nil
}

// frequencies returns the angle per position of each pair.
func (r RoPE) frequencies() []float64 {
	f := make([]float64, r.Dims/2)
	for i := range f {
		frequency := math.Pow(r.Theta, -2*float64(i)/float64(r.Dims))
		f[i] = r.YaRN.apply(r.Scaling.apply(frequency), r.Theta, r.Dims, i)
	}
	return f
}

func (s Scaling) apply(frequency float64) float64 {
	if s.Factor == 0 {
		return frequency
	}
	// How often the pair turns over the original context decides.
	turns := float64(s.OriginalPositions) * frequency / (2 * math.Pi)
	switch {
	case turns < s.LowFrequency:
		return frequency / s.Factor
	case turns > s.HighFrequency:
		return frequency
	}
	keep := (turns - s.LowFrequency) / (s.HighFrequency - s.LowFrequency)
	return (1-keep)*frequency/s.Factor + keep*frequency
}

// table returns cos and sin [MaxPositions, Dims/2], computed in float64 and shared
// by all layers and graphs with the same angles.
func (r RoPE) table(b *graph.Builder, d device.DType) (cos, sin graph.Value) {
	r.Layout = 0 // angles do not depend on it
	name := fmt.Sprintf("rope(theta=%g dims=%d positions=%d %v", r.Theta, r.Dims, r.MaxPositions, d)
	if s := r.Scaling; s.Factor != 0 {
		name += fmt.Sprintf(" factor=%g low=%g high=%g original=%d", s.Factor, s.LowFrequency, s.HighFrequency, s.OriginalPositions)
	}
	if y := r.YaRN; y.Factor != 0 {
		name += fmt.Sprintf(" yarn=%g original=%d fast=%g slow=%g", y.Factor, y.OriginalPositions, y.BetaFast, y.BetaSlow)
	}
	name += ")"
	one := func(part string, f func(float64) float64) graph.Value {
		return b.Table(name+"."+part, func(b *graph.Builder) graph.Value {
			return b.Constant("", d, r.angles(f), r.MaxPositions, r.Dims/2)
		})
	}
	return one("cos", math.Cos), one("sin", math.Sin)
}

// angles fills a table with a function of position times frequency.
func (r RoPE) angles(f func(float64) float64) graph.Computed {
	return func(table device.Tensor) {
		frequencies := r.frequencies()
		at := func(i int) float64 { return f(float64(i/len(frequencies)) * frequencies[i%len(frequencies)]) }
		if table.DType() == device.Float64 {
			for i := range device.Elements[float64](table) {
				device.Elements[float64](table)[i] = at(i)
			}
			return
		}
		for i := range device.Elements[float32](table) {
			device.Elements[float32](table)[i] = float32(at(i))
		}
	}
}

// consecutive returns the positions 0 to T−1 of every sequence, int32 [B, T].
func consecutive(b *graph.Builder, batch, tokens int) graph.Value {
	return b.Table(fmt.Sprintf("positions(%d %d)", batch, tokens), func(b *graph.Builder) graph.Value {
		return b.Constant("", device.Int32, graph.Computed(func(t device.Tensor) {
			positions := device.Elements[int32](t)
			for i := range positions {
				positions[i] = int32(i % tokens)
			}
		}), batch, tokens)
	})
}

// rope has the inputs x, cos, sin and positions.
type rope struct {
	graph.Pure
	layout  device.RoPELayout
	skip    int // elements of a head before the rotated ones
	inverse bool
}

func (o rope) Kind() string {
	if o.inverse {
		return "rope_backward"
	}
	return "rope"
}

func (rope) Outputs(in []device.Spec) ([]device.Spec, error) {
	x, cos, positions := in[0], in[1], in[3]
	if x.DType != cos.DType {
		return nil, fmt.Errorf("want float32 or float64, have %v", x)
	}
	want := device.NewSpec(device.Int32, x.Shape[0], x.Shape[1])
	if !positions.Equal(want) {
		return nil, fmt.Errorf("positions are %v: want %v", positions, want)
	}
	return in[:1], nil
}

func (rope) Cost(in []device.Spec) graph.Cost {
	x, cos := in[0], in[1]
	c := graph.Traffic(3*float64(x.Len()), in[:1], in[:1])
	c.BytesRead += 2 * int64(x.Shape[0]) * int64(x.Shape[1]) * int64(cos.Last()) * int64(cos.DType.Size())
	return c
}

func (o rope) Run(x *graph.Exec, out, in []device.Tensor) error {
	y, from := out[0], in[0]
	if o.skip > 0 {
		x.Copy(y.Slice(3, 0, o.skip), from.Slice(3, 0, o.skip))
		y, from = y.Slice(3, o.skip, y.Dim(3)), from.Slice(3, o.skip, from.Dim(3))
	}
	x.RoPE(y, from, in[1], in[2], in[3], o.layout, o.inverse)
	return nil
}

// Gradient rotates back: the transpose of a rotation is its inverse.
func (o rope) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	back := make([]graph.Value, len(in))
	o.inverse = !o.inverse
	back[0] = b.Apply(o, grad[0], in[1], in[2], in[3])
	return back
}
