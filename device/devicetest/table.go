package devicetest

import (
	"math"

	"github.com/lethe-go/lethe/device"
)

func tableTests() []kernelTest {
	return []kernelTest{
		{"Embedding", embeddingTest},
		{"EmbeddingBackward", embeddingBackwardTest},
		{"RoPE/AdjacentPairs", ropeTest(device.AdjacentPairs)},
		{"RoPE/RotateHalf", ropeTest(device.RotateHalf)},
	}
}

func embeddingTest(c *scene) (func(device.Kernels), func()) {
	vocabulary, width := c.extent("vocabulary", 1, 9, 50), c.extent("width", 1, 9, 96)
	part, rows := c.part(vocabulary)
	table := c.input(lastContiguous, rows, width)
	ids := c.ids(anyStrides, vocabulary, c.rows(c.extent("ids", 0, 5, 2))...)
	dst := c.output(lastContiguous, append(ids.Shape(), width)...)
	return func(k device.Kernels) { k.Embedding(dst.Tensor, table.Tensor, ids.Tensor, part) },
		func() {
			want := make([]float64, dst.Len())
			for i := range want {
				if row := int(ids.values[i/width]) - part.First; row >= 0 && row < rows {
					want[i] = table.values[row*width+i%width]
				}
			}
			c.close(dst, want, nil, 0)
		}
}

// part is the whole of n rows, or some of them.
func (c *scene) part(n int) (part device.Part, rows int) {
	if c.flag("whole") {
		return device.Part{}, n
	}
	first := c.extent("first row", 0, n, n/3)
	return device.Part{First: first, Whole: n}, c.extent("rows of the part", 0, n-first, n/3)
}

func embeddingBackwardTest(c *scene) (func(device.Kernels), func()) {
	vocabulary, width := c.extent("vocabulary", 1, 9, 50), c.extent("width", 1, 9, 96)
	ids := c.ids(anyStrides, vocabulary, c.rows(c.extent("ids", 0, 5, 2))...)
	dy := c.input(lastContiguous, append(ids.Shape(), width)...)
	part, rows := c.part(vocabulary)
	dtable := c.output(lastContiguous, rows, width)
	return func(k device.Kernels) { k.EmbeddingBackward(dtable.Tensor, ids.Tensor, dy.Tensor, part) },
		func() {
			want, scale := make([]float64, dtable.Len()), make([]float64, dtable.Len())
			for i, d := range dy.values {
				row := int(ids.values[i/width]) - part.First
				if row < 0 || row >= rows {
					continue
				}
				want[row*width+i%width] += d
				scale[row*width+i%width] += math.Abs(d)
			}
			c.close(dtable, want, scale, 6)
		}
}

func ropeTest(layout device.RoPELayout) func(c *scene) (func(device.Kernels), func()) {
	return func(c *scene) (func(device.Kernels), func()) {
		batch, tokens, heads := c.extent("batch", 0, 3, 2), c.extent("tokens", 0, 5, 97), c.extent("heads", 1, 3, 4)
		pairs, limit := c.extent("pairs", 0, 5, 12), c.extent("limit", 1, 9, 99)
		width := max(1, 2*pairs+c.extent("rest", 0, 3, 2))
		x := c.input(lastContiguous, batch, tokens, heads, width)
		positions := c.ids(anyStrides, limit, batch, tokens)
		angle := c.input(contiguous, limit, pairs).values
		cosines, sines := make([]float64, len(angle)), make([]float64, len(angle))
		for i, a := range angle {
			sines[i], cosines[i] = math.Sincos(a)
		}
		cos := c.inputOf(c.dtype, lastContiguous, cosines, limit, pairs)
		sin := c.inputOf(c.dtype, lastContiguous, sines, limit, pairs)
		dst, inverse := c.output(lastContiguous, x.Shape()...), c.flag("inverse")
		return func(k device.Kernels) {
				k.RoPE(dst.Tensor, x.Tensor, cos.Tensor, sin.Tensor, positions.Tensor, layout, inverse)
			},
			func() {
				want, scale := append([]float64(nil), x.values...), append([]float64(nil), x.values...)
				for token, p := range positions.values {
					for head := range heads {
						for i := range pairs {
							first, second := i, i+pairs
							if layout == device.AdjacentPairs {
								first, second = 2*i, 2*i+1
							}
							at := (token*heads + head) * width
							a, b := x.values[at+first], x.values[at+second]
							c, s := cos.values[int(p)*pairs+i], sin.values[int(p)*pairs+i]
							if inverse {
								s = -s
							}
							want[at+first], want[at+second] = a*c-b*s, a*s+b*c
							scale[at+first], scale[at+second] = math.Abs(a)+math.Abs(b), math.Abs(a)+math.Abs(b)
						}
					}
				}
				c.close(dst, want, scale, 2)
			}
	}
}
