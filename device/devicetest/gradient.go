package devicetest

import (
	"math"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
)

// gradientTest compares a kernel for a gradient with central differences of the
// kernel it belongs to, both in float64.
type gradientTest struct {
	name string
	// build returns the output of forward, the inputs that are differentiated,
	// and for a gradient dy of the output the tensors that backward writes.
	build func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels))
}

func testGradients(t *testing.T, d device.Device) {
	for _, g := range slices.Concat(gradientTests, routingGradients) {
		t.Run(g.name, func(t *testing.T) {
			q := d.NewQueue()
			defer q.Close()
			for seed := range uint64(4) {
				c := newScene(t, d, q, device.Float64, seed)
				y, x, dy, dx, forward, backward := g.build(c)
				c.commit()
				forward(q)
				backward(q)
				c.verify()
				for i := range x {
					c.close(dx[i], c.differences(y, x[i], dy, forward), peaks(x[i].values), 1e7) // 2e-9
				}
				c.free()
			}
		})
	}
}

// differences is the gradient of Σ dy·y by x.
func (c *scene) differences(y, x, dy *operand, forward func(k device.Kernels)) []float64 {
	const h = 1e-4 // fourth-order differences: h⁴ and the rounding over h meet
	gradient := make([]float64, x.Len())
	each(x.Tensor, func(i int, at int64) {
		loss := func(change float64) float64 {
			moved := *x
			moved.bytes = append([]byte(nil), x.bytes...)
			putNumber(x.DType(), moved.bytes[at:], x.values[i]+change)
			c.transfer(&moved, func(onDevice []byte) { copy(onDevice, moved.bytes) }, true)
			forward(c.queue)
			c.sync()
			return dot(c.read(y), dy.values)
		}
		near, far := loss(h)-loss(-h), loss(2*h)-loss(-2*h)
		gradient[i] = (8*near - far) / (12 * h)
		loss(0)
	})
	return gradient
}

var gradientTests = []gradientTest{
	{"RMSNorm", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		in, weight := c.input(lastContiguous, 3, 5), c.input(contiguous, 5)
		y, dy = c.output(lastContiguous, 3, 5), c.input(lastContiguous, 3, 5)
		dIn, dWeight := c.output(lastContiguous, 3, 5), c.output(contiguous, 5)
		ws := c.outputOf(device.Uint8, contiguous, 2*device.Alignment+int(device.RMSNormWorkspace(device.Float64, 3, 5)))
		return y, []*operand{in, weight}, dy, []*operand{dIn, dWeight},
			func(k device.Kernels) { k.RMSNorm(y.Tensor, in.Tensor, weight.Tensor, eps) },
			func(k device.Kernels) {
				k.RMSNormBackward(dIn.Tensor, dWeight.Tensor, in.Tensor, weight.Tensor, dy.Tensor, eps, aligned(ws.Tensor))
			}
	}},
	{"SwiGLU", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		gate, up := c.input(anyStrides, 3, 5), c.input(anyStrides, 3, 5)
		y, dy = c.output(anyStrides, 3, 5), c.input(anyStrides, 3, 5)
		dGate, dUp := c.output(anyStrides, 3, 5), c.output(anyStrides, 3, 5)
		return y, []*operand{gate, up}, dy, []*operand{dGate, dUp},
			func(k device.Kernels) { k.SwiGLU(y.Tensor, gate.Tensor, up.Tensor) },
			func(k device.Kernels) { k.SwiGLUBackward(dGate.Tensor, dUp.Tensor, gate.Tensor, up.Tensor, dy.Tensor) }
	}},
	{"Softmax", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		in := c.input(lastContiguous, 3, 5)
		y, dy = c.output(lastContiguous, 3, 5), c.input(lastContiguous, 3, 5)
		dIn := c.output(lastContiguous, 3, 5)
		return y, []*operand{in}, dy, []*operand{dIn},
			func(k device.Kernels) { k.Softmax(y.Tensor, in.Tensor) },
			func(k device.Kernels) { k.SoftmaxBackward(dIn.Tensor, y.Tensor, dy.Tensor) }
	}},
	{"RoPE", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		in := c.input(lastContiguous, 2, 3, 2, 5)
		y, dy = c.output(lastContiguous, 2, 3, 2, 5), c.input(lastContiguous, 2, 3, 2, 5)
		dIn, positions := c.output(lastContiguous, 2, 3, 2, 5), c.ids(contiguous, 4, 2, 3)
		cos, sin := c.input(contiguous, 4, 2), c.input(contiguous, 4, 2)
		layout := device.RoPELayout(c.rand.IntN(2))
		return y, []*operand{in}, dy, []*operand{dIn},
			func(k device.Kernels) {
				k.RoPE(y.Tensor, in.Tensor, cos.Tensor, sin.Tensor, positions.Tensor, layout, false)
			},
			func(k device.Kernels) {
				k.RoPE(dIn.Tensor, dy.Tensor, cos.Tensor, sin.Tensor, positions.Tensor, layout, true)
			}
	}},
	{"Embedding", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		table, ids := c.input(lastContiguous, 4, 5), c.ids(contiguous, 6, 2, 3)
		part := device.Part{First: 1, Whole: 6}
		y, dy = c.output(lastContiguous, 2, 3, 5), c.input(lastContiguous, 2, 3, 5)
		dTable := c.output(lastContiguous, 4, 5)
		return y, []*operand{table}, dy, []*operand{dTable},
			func(k device.Kernels) { k.Embedding(y.Tensor, table.Tensor, ids.Tensor, part) },
			func(k device.Kernels) { k.EmbeddingBackward(dTable.Tensor, ids.Tensor, dy.Tensor, part) }
	}},
	{"CrossEntropy", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		logits := c.input(contiguous, 3, 5)
		labels := c.inputOf(device.Int32, contiguous, []float64{4, -1, 2}, 3)
		ones := func() float64 { return 1 }
		y, dy = c.output(contiguous, 3), c.inputWith(contiguous, ones, 3)
		again, gradient := c.output(contiguous, 3), c.output(contiguous, 3, 5)
		return y, []*operand{logits}, dy, []*operand{gradient},
			func(k device.Kernels) { k.CrossEntropy(y.Tensor, logits.Tensor, labels.Tensor, -1, false) },
			func(k device.Kernels) {
				k.Copy(gradient.Tensor, logits.Tensor)
				k.CrossEntropy(again.Tensor, gradient.Tensor, labels.Tensor, -1, true)
			}
	}},
	{"Dropout", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		in := c.input(anyStrides, 3, 5)
		y, dy = c.output(anyStrides, 3, 5), c.input(anyStrides, 3, 5)
		dIn, draw := c.output(anyStrides, 3, 5), c.shard([]int{3, 5})
		return y, []*operand{in}, dy, []*operand{dIn},
			func(k device.Kernels) { k.Dropout(y.Tensor, in.Tensor, 0.4, draw) },
			func(k device.Kernels) { k.Dropout(dIn.Tensor, dy.Tensor, 0.4, draw) }
	}},
	{"Attention", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		q, key, v := c.input(lastContiguous, 2, 4, 4, 3), c.input(lastContiguous, 2, 5, 2, 3), c.input(lastContiguous, 2, 5, 2, 2)
		y, dy = c.output(lastContiguous, 2, 4, 4, 2), c.input(lastContiguous, 2, 4, 4, 2)
		lse := c.output(contiguous, 2, 4, 4)
		dq, dk, dv := c.output(lastContiguous, 2, 4, 4, 3), c.output(lastContiguous, 2, 5, 2, 3), c.output(lastContiguous, 2, 5, 2, 2)
		ws := c.outputOf(device.Uint8, contiguous, 2*device.Alignment+int(device.AttentionWorkspace(device.Float64, 2, 4, 4)))
		mask := device.Mask{Causal: true, Offset: 1, Window: 3}
		return y, []*operand{q, key, v}, dy, []*operand{dq, dk, dv},
			func(k device.Kernels) { k.Attention(y.Tensor, lse.Tensor, q.Tensor, key.Tensor, v.Tensor, mask, 0.7) },
			func(k device.Kernels) {
				k.AttentionBackward(dq.Tensor, dk.Tensor, dv.Tensor, q.Tensor, key.Tensor, v.Tensor,
					y.Tensor, lse.Tensor, dy.Tensor, mask, 0.7, aligned(ws.Tensor))
			}
	}},
}

// testSpecialValues tests what lies beyond the numbers of the other tests.
func testSpecialValues(t *testing.T, d device.Device) {
	q := d.NewQueue()
	defer q.Close()
	inf, nan := math.Inf(1), math.NaN()
	for _, dtype := range []device.DType{device.Float32, device.Float64} {
		c := newScene(t, d, q, dtype, seed)
		defer c.free()
		unary := func(f device.UnaryFunc, x, want []float64) {
			in, out := c.inputOf(dtype, contiguous, x, len(x)), c.output(contiguous, len(x))
			c.commit()
			q.Unary(f, out.Tensor, in.Tensor)
			c.sync()
			c.close(out, want, nil, 2)
		}
		unary(device.Exp, []float64{inf, -inf, nan, 0, 1000, -1000, 88.5, -90, -87.2, 86.9},
			[]float64{inf, 0, nan, 1, exp(dtype, 1000), exp(dtype, -1000), exp(dtype, 88.5), exp(dtype, -90), exp(dtype, -87.2), exp(dtype, 86.9)})
		unary(device.Sigmoid, []float64{inf, -inf, nan, 0, 1000, -1000}, []float64{1, 0, nan, 0.5, 1, 0})
		unary(device.Tanh, []float64{inf, -inf, nan, 0, 1000, -1000}, []float64{1, -1, nan, 0, 1, -1})
		unary(device.Log, []float64{inf, 0, -1, nan}, []float64{inf, -inf, nan, nan})
		unary(device.Sqrt, []float64{inf, 0, -1, nan}, []float64{inf, 0, nan, nan})

		x := c.inputOf(dtype, contiguous, []float64{1, -inf, 1, nan, 0, 0, -1e30, 0, -1e30}, 3, 3)
		y := c.output(contiguous, 3, 3)
		c.commit()
		q.Softmax(y.Tensor, x.Tensor)
		c.sync()
		c.close(y, []float64{0.5, 0, 0.5, nan, nan, nan, 0, 1, 0}, nil, 2)
	}
}

// exp is eˣ of x and the result as rounded to a dtype.
func exp(d device.DType, x float64) float64 { return roundTo(d, math.Exp(roundTo(d, x))) }
