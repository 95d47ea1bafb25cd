package devicetest

import (
	"math"

	"github.com/lethe-go/lethe/device"
)

func elementwiseTests() []kernelTest {
	tests := []kernelTest{
		{"Fill", fillTest},
		{"Copy", copyTest},
		{"AddScaled", addScaledTest},
		{"SwiGLU", swiGLUTest},
		{"SwiGLUBackward", swiGLUBackwardTest},
	}
	for _, u := range unaryFunctions {
		tests = append(tests, kernelTest{"Unary/" + u.name, unaryTest(u)})
	}
	for _, b := range binaryFunctions {
		tests = append(tests, kernelTest{"Binary/" + b.name, binaryTest(b)})
	}
	return tests
}

func fillTest(c *scene) (func(device.Kernels), func()) {
	dst, value := c.output(anyStrides, c.shape()...), c.rand.NormFloat64()
	return func(k device.Kernels) { k.Fill(dst.Tensor, value) },
		func() {
			want := make([]float64, dst.Len())
			for i := range want {
				want[i] = roundTo(c.dtype, value)
			}
			c.close(dst, want, nil, 0)
		}
}

func copyTest(c *scene) (func(device.Kernels), func()) {
	shape := c.shape()
	x, dst := c.input(anyStrides, shape...), c.output(anyStrides, shape...)
	return func(k device.Kernels) { k.Copy(dst.Tensor, x.Tensor) },
		func() { c.close(dst, x.values, nil, 0) }
}

type unaryFunction struct {
	name     string
	f        device.UnaryFunc
	positive bool
	ulps     float64
	want     func(float64) float64
}

var unaryFunctions = []unaryFunction{
	{"Neg", device.Neg, false, 0, func(x float64) float64 { return -x }},
	{"Exp", device.Exp, false, 2, math.Exp},
	{"Log", device.Log, true, 2, math.Log},
	{"Sqrt", device.Sqrt, true, 1, math.Sqrt},
	{"Square", device.Square, false, 1, func(x float64) float64 { return x * x }},
	{"Inverse", device.Inverse, false, 1, func(x float64) float64 { return 1 / x }},
	{"Sigmoid", device.Sigmoid, false, 4, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }},
	{"Tanh", device.Tanh, false, 4, math.Tanh},
}

func unaryTest(u unaryFunction) func(c *scene) (func(device.Kernels), func()) {
	return func(c *scene) (func(device.Kernels), func()) {
		// Up to the limits of float32's exponential, and mostly around 0.
		next := func() float64 { return c.rand.NormFloat64() * math.Exp(4.5*c.rand.Float64()) }
		if u.positive {
			next = func() float64 { return math.Exp(10 * c.rand.NormFloat64()) }
		}
		x := c.inputWith(anyStrides, next, c.shape()...)
		dst := c.outputOrInPlace(x)
		return func(k device.Kernels) { k.Unary(u.f, dst.Tensor, x.Tensor) },
			func() {
				c.close(dst, mapped(func(x ...float64) float64 { return overflowing(c.dtype, u.want(x[0])) }, x), nil, u.ulps)
			}
	}
}

// overflowing is v, or Inf where v is too large for a dtype.
func overflowing(d device.DType, v float64) float64 {
	if r := roundTo(d, v); math.IsInf(r, 0) {
		return r
	}
	return v
}

// outputOrInPlace returns an output of x's shape, or x itself.
func (c *scene) outputOrInPlace(x *operand) *operand {
	if c.flag("in place") {
		return inPlace(x)
	}
	return c.output(anyStrides, x.Shape()...)
}

type binaryFunction struct {
	name string
	f    device.BinaryFunc
	want func(a, b float64) float64
}

var binaryFunctions = []binaryFunction{
	{"Add", device.Add, func(a, b float64) float64 { return a + b }},
	{"Sub", device.Sub, func(a, b float64) float64 { return a - b }},
	{"Mul", device.Mul, func(a, b float64) float64 { return a * b }},
	{"Div", device.Div, func(a, b float64) float64 { return a / b }},
	{"Maximum", device.Maximum, math.Max},
}

func binaryTest(b binaryFunction) func(c *scene) (func(device.Kernels), func()) {
	return func(c *scene) (func(device.Kernels), func()) {
		x := c.input(anyStrides, c.shape()...)
		y := c.broadcast(x.Shape())
		dst := c.outputOrInPlace(x)
		return func(k device.Kernels) { k.Binary(b.f, dst.Tensor, x.Tensor, y.Tensor) },
			func() { c.close(dst, mapped(func(x ...float64) float64 { return b.want(x[0], x[1]) }, x, y), nil, 1) }
	}
}

// broadcast returns an input in which some dimensions may be repeated.
func (c *scene) broadcast(shape []int) *operand {
	narrow := append([]int(nil), shape...)
	for i := range narrow {
		if c.rand.IntN(3) == 0 {
			narrow[i] = 1
		}
	}
	if len(narrow) > 0 && c.flag("fewer dimensions") {
		narrow = narrow[1:]
	}
	o := c.input(anyStrides, narrow...)
	wide := *o
	wide.Tensor = o.Broadcast(shape...)
	wide.values = make([]float64, wide.Len())
	each(wide.Tensor, func(i int, at int64) { wide.values[i] = getNumber(c.dtype, o.bytes[at:]) })
	return &wide
}

func addScaledTest(c *scene) (func(device.Kernels), func()) {
	x := c.input(anyStrides, c.shape()...)
	y := c.broadcast(x.Shape())
	dst := c.outputOrInPlace(x)
	return func(k device.Kernels) { k.AddScaled(dst.Tensor, x.Tensor, y.Tensor, -0.75) },
		func() {
			want := mapped(func(x ...float64) float64 { return x[0] - 0.75*x[1] }, x, y)
			scale := mapped(func(x ...float64) float64 { return math.Abs(x[0]) + math.Abs(x[1]) }, x, y)
			c.close(dst, want, scale, 1)
		}
}

func swiGLUTest(c *scene) (func(device.Kernels), func()) {
	gate := c.input(anyStrides, c.shape()...)
	up := c.input(anyStrides, gate.Shape()...)
	dst := c.outputOrInPlace(gate)
	return func(k device.Kernels) { k.SwiGLU(dst.Tensor, gate.Tensor, up.Tensor) },
		func() {
			c.close(dst, mapped(func(x ...float64) float64 { return x[0] * sigmoid(x[0]) * x[1] }, gate, up), nil, 6)
		}
}

func swiGLUBackwardTest(c *scene) (func(device.Kernels), func()) {
	gate := c.input(anyStrides, c.shape()...)
	up, dy := c.input(anyStrides, gate.Shape()...), c.input(anyStrides, gate.Shape()...)
	dgate, dup := c.outputOrInPlace(gate), c.outputOrInPlace(up)
	return func(k device.Kernels) {
			k.SwiGLUBackward(dgate.Tensor, dup.Tensor, gate.Tensor, up.Tensor, dy.Tensor)
		},
		func() {
			wantGate := mapped(func(x ...float64) float64 {
				s := sigmoid(x[0])
				return x[2] * x[1] * s * (1 + x[0]*(1-s))
			}, gate, up, dy)
			wantUp := mapped(func(x ...float64) float64 { return x[1] * x[0] * sigmoid(x[0]) }, gate, dy)
			// silu′ has a root: its terms' magnitude is the scale.
			scale := mapped(func(x ...float64) float64 { return x[1] * x[2] * (1 + math.Abs(x[0])) * sigmoid(x[0]) }, gate, up, dy)
			c.close(dgate, wantGate, scale, 8)
			c.close(dup, wantUp, nil, 6)
		}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
