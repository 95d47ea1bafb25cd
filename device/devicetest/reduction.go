package devicetest

import (
	"math"
	"math/big"

	"github.com/lethe-go/lethe/device"
)

func reductionTests() []kernelTest {
	return []kernelTest{
		{"Sum", sumTest},
		{"Sum/columns", sumColumnsTest},
		{"Sum/all", sumAllTest},
		{"SumSquares", sumSquaresTest},
		{"CountNonFinite", countNonFiniteTest},
		{"ClipFactor", clipFactorTest},
	}
}

func sumTest(c *scene) (func(device.Kernels), func()) {
	shape := c.shape()
	narrow := append([]int(nil), shape...)
	for i := range narrow {
		if c.rand.IntN(2) == 0 {
			narrow[i] = 1
		}
	}
	return sumOf(c, c.input(anyStrides, shape...), narrow)
}

// sumColumnsTest is the gradient of a bias.
func sumColumnsTest(c *scene) (func(device.Kernels), func()) {
	rows, columns := c.extent("rows", 0, 9, 900), c.extent("columns", 0, 9, 300)
	return sumOf(c, c.input(lastContiguous, rows, columns), []int{1, columns})
}

func sumAllTest(c *scene) (func(device.Kernels), func()) {
	n := c.extent("elements", 0, 40, 100001)
	return sumOf(c, c.input(contiguous, n), []int{1})
}

func sumOf(c *scene, x *operand, narrow []int) (func(device.Kernels), func()) {
	dst := c.output(anyStrides, narrow...)
	return func(k device.Kernels) { k.Sum(dst.Tensor, x.Tensor) },
		func() {
			want, scale := make([]float64, dst.Len()), make([]float64, dst.Len())
			for i, v := range x.values {
				at, rest, stride := 0, i, 1
				for d := x.Rank() - 1; d >= 0; d-- {
					if narrow[d] != 1 {
						at += rest % x.Dim(d) * stride
					}
					stride *= narrow[d]
					rest /= x.Dim(d)
				}
				want[at] += v
				scale[at] += math.Abs(v)
			}
			// float64 partial sums: a float32 result is rounded once.
			ulps := 1.0
			if c.dtype == device.Float64 {
				ulps += math.Sqrt(float64(x.Len()))
			} else {
				scale = want
			}
			c.close(dst, want, scale, ulps)
		}
}

func sumSquaresTest(c *scene) (func(device.Kernels), func()) {
	x := c.input(contiguous, c.shape()...)
	dst := c.outputOf(device.Float64, contiguous)
	return func(k device.Kernels) { k.SumSquares(dst.Tensor, x.Tensor) },
		func() {
			sum := new(big.Float).SetPrec(200)
			for _, v := range x.values {
				sum.Add(sum, new(big.Float).SetFloat64(v*v))
			}
			want, _ := sum.Float64()
			c.close(dst, []float64{want}, nil, 1+math.Sqrt(float64(x.Len())))
		}
}

func countNonFiniteTest(c *scene) (func(device.Kernels), func()) {
	count := 5.0
	x := c.inputWith(anyStrides, func() float64 {
		special := [...]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat32, 0, 1e-40}
		i := c.rand.IntN(3 * len(special))
		if i >= len(special) {
			return c.rand.NormFloat64()
		}
		if i < 3 {
			count++
		}
		return special[i]
	}, c.shape()...)
	dst := inPlace(c.inputOf(device.Int32, contiguous, []float64{5}))
	calls := 0.0
	return func(k device.Kernels) { k.CountNonFinite(dst.Tensor, x.Tensor); calls++ },
		func() { c.close(dst, []float64{5 + calls*(count-5)}, nil, 0) }
}

func clipFactorTest(c *scene) (func(device.Kernels), func()) {
	norm := c.inputWith(contiguous, func() float64 { return math.Exp(3 * c.rand.NormFloat64()) })
	dst := c.output(contiguous)
	return func(k device.Kernels) { k.ClipFactor(dst.Tensor, norm.Tensor, 1.5) },
		func() { c.close(dst, []float64{min(1, 1.5/(norm.values[0]+1e-6))}, nil, 2) }
}
