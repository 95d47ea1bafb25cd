package devicetest

import (
	"math"

	"github.com/lethe-go/lethe/device"
)

func optimizerTests() []kernelTest { return []kernelTest{{"AdamW", adamWTest}} }

// adamWTest takes several steps with one gradient.
func adamWTest(c *scene) (func(device.Kernels), func()) {
	layout := contiguous
	if c.flag("strided") {
		layout = anyStrides
	}
	param := inPlace(c.input(layout, c.shape()...))
	zero := func() float64 { return 0 }
	m := inPlace(c.inputWith(layout, zero, param.Shape()...))
	v := inPlace(c.inputWith(layout, zero, param.Shape()...))
	grad := c.input(layout, param.Shape()...)
	var factor device.Tensor
	g := 1.0
	if c.flag("clipped") {
		f := c.inputWith(contiguous, c.rand.Float64)
		factor, g = f.Tensor, f.values[0]
	}
	a := device.AdamW{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}
	const steps = 4
	return func(k device.Kernels) {
			for a.Step = 1; a.Step <= steps; a.Step++ {
				k.AdamW(param.Tensor, m.Tensor, v.Tensor, grad.Tensor, factor, a)
			}
		},
		func() {
			wantParam, wantM, wantV := make([]float64, param.Len()), make([]float64, param.Len()), make([]float64, param.Len())
			scale := make([]float64, param.Len())
			for i, p := range param.values {
				m, v, g := 0.0, 0.0, g*grad.values[i]
				scale[i] = math.Abs(p) + steps*a.LearningRate
				for t := 1.0; t <= steps; t++ {
					p *= 1 - a.LearningRate*a.WeightDecay
					m = a.Beta1*m + (1-a.Beta1)*g
					v = a.Beta2*v + (1-a.Beta2)*g*g
					p -= a.LearningRate * (m / (1 - math.Pow(a.Beta1, t))) / (math.Sqrt(v/(1-math.Pow(a.Beta2, t))) + a.Epsilon)
				}
				wantParam[i], wantM[i], wantV[i] = p, m, v
			}
			c.close(param, wantParam, scale, steps+1)
			c.close(m, wantM, nil, 2*steps)
			c.close(v, wantV, nil, 2*steps)
		}
}
