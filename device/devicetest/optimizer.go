package devicetest

import (
	"math"

	"github.com/lethe-go/lethe/device"
)

func optimizerTests() []kernelTest {
	return []kernelTest{{"AdamW", adamWTest}, {"SGD", sgdTest}, {"Lerp", lerpTest}}
}

// optimizerSteps is how many steps the tests take, with one gradient.
const optimizerSteps = 4

func adamWTest(c *scene) (func(device.Kernels), func()) {
	layout := c.optimizerLayout()
	param := inPlace(c.input(layout, c.shape()...))
	m, v := c.moment(layout, param), c.moment(layout, param)
	factor, clip := c.clipFactor()
	a := device.AdamW{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}
	grad := c.input(layout, param.Shape()...)
	if c.flag("coupled") {
		a.WeightDecay, a.L2 = 0, 0.1
		grad = c.alongside(param, layout)
	}
	return func(k device.Kernels) {
			for a.Step = 1; a.Step <= optimizerSteps; a.Step++ {
				k.AdamW(param.Tensor, m.Tensor, v.Tensor, grad.Tensor, factor, a)
			}
		},
		func() {
			wantParam, wantM, wantV := make([]float64, param.Len()), make([]float64, param.Len()), make([]float64, param.Len())
			scale := make([]float64, param.Len())
			for i, p := range param.values {
				m, v := 0.0, 0.0
				scale[i] = math.Abs(p) + optimizerSteps*a.LearningRate
				for t := 1.0; t <= optimizerSteps; t++ {
					g := clip*grad.values[i] + a.L2*p
					p *= 1 - a.LearningRate*a.WeightDecay
					m = a.Beta1*m + (1-a.Beta1)*g
					v = a.Beta2*v + (1-a.Beta2)*g*g
					p -= a.LearningRate * (m / (1 - math.Pow(a.Beta1, t))) / (math.Sqrt(v/(1-math.Pow(a.Beta2, t))) + a.Epsilon)
				}
				wantParam[i], wantM[i], wantV[i] = p, m, v
			}
			c.close(param, wantParam, scale, optimizerSteps+1)
			c.close(m, wantM, nil, 2*optimizerSteps)
			c.close(v, wantV, nil, 2*optimizerSteps)
		}
}

func sgdTest(c *scene) (func(device.Kernels), func()) {
	layout := c.optimizerLayout()
	param := inPlace(c.input(layout, c.shape()...))
	factor, clip := c.clipFactor()
	s := device.SGD{LearningRate: 0.01, L2: 0.1, Nesterov: c.flag("nesterov")}
	grad := c.alongside(param, layout)
	var buffer *operand
	var momentum device.Tensor
	if c.flag("momentum") {
		s.Momentum = 0.9
		buffer = c.moment(layout, param)
		momentum = buffer.Tensor
	}
	return func(k device.Kernels) {
			for range optimizerSteps {
				k.SGD(param.Tensor, momentum, grad.Tensor, factor, s)
			}
		},
		func() {
			wantParam, wantMomentum := make([]float64, param.Len()), make([]float64, param.Len())
			scale := make([]float64, param.Len())
			for i, p := range param.values {
				m := 0.0
				scale[i] = math.Abs(p)
				for range optimizerSteps {
					g := clip*grad.values[i] + s.L2*p
					m = s.Momentum*m + g
					step := m
					if s.Nesterov {
						step = g + s.Momentum*m
					}
					p -= s.LearningRate * step
					scale[i] += s.LearningRate * math.Abs(step)
				}
				wantParam[i], wantMomentum[i] = p, m
			}
			c.close(param, wantParam, scale, optimizerSteps+1)
			if buffer != nil {
				c.close(buffer, wantMomentum, nil, 2*optimizerSteps)
			}
		}
}

func lerpTest(c *scene) (func(device.Kernels), func()) {
	x := c.input(anyStrides, c.shape()...)
	y := c.broadcast(x.Shape())
	dst := c.outputOrInPlace(x)
	weight := 1 / (1 + math.Exp(10*c.rand.NormFloat64())) // near 0 and near 1 too
	return func(k device.Kernels) { k.Lerp(dst.Tensor, x.Tensor, y.Tensor, weight) },
		func() {
			want := mapped(func(x ...float64) float64 { return x[0] + weight*(x[1]-x[0]) }, x, y)
			scale := mapped(func(x ...float64) float64 { return math.Abs(x[0]) + math.Abs(x[1]) }, x, y)
			c.close(dst, want, scale, 2)
		}
}

func (c *scene) optimizerLayout() layout {
	if c.flag("strided") {
		return anyStrides
	}
	return contiguous
}

// moment returns zeros that a kernel updates.
func (c *scene) moment(l layout, param *operand) *operand {
	return inPlace(c.inputWith(l, func() float64 { return 0 }, param.Shape()...))
}

// clipFactor returns a factor on gradients and its value, or the zero Tensor and 1.
func (c *scene) clipFactor() (device.Tensor, float64) {
	if !c.flag("clipped") {
		return device.Tensor{}, 1
	}
	f := c.inputWith(contiguous, func() float64 { return 0.5 + c.rand.Float64()/2 })
	return f.Tensor, f.values[0]
}

// alongside returns gradients that have their parameter's sign and are not small, so
// that their sum with a multiple of the parameter does not cancel.
func (c *scene) alongside(param *operand, l layout) *operand {
	values := make([]float64, param.Len())
	for i, p := range param.values {
		values[i] = math.Copysign(0.5+math.Abs(c.rand.NormFloat64()), p)
	}
	return c.inputOf(c.dtype, l, values, param.Shape()...)
}
