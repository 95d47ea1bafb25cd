package devicetest

import (
	"math"

	"github.com/lethe-go/lethe/device"
)

func matMulTests() []kernelTest {
	return []kernelTest{
		{"MatMul", matMulTest(false)},
		{"MatMul/batch", matMulTest(true)},
	}
}

func matMulTest(batched bool) func(c *scene) (func(device.Kernels), func()) {
	return func(c *scene) (func(device.Kernels), func()) {
		m, n, k := c.extent("m", 0, 40, 157), c.extent("n", 0, 40, 211), c.extent("k", 0, 40, 93)
		batch := 1
		if batched {
			batch = c.extent("batch", 0, 4, 5)
		}
		a, b := c.matrices(batched, batch, m, k), c.matrices(batched, batch, k, n)
		shape := []int{batch, m, n}
		if !batched {
			shape = shape[1:]
		}
		accumulate := c.small != nil && c.flag("accumulate")
		dst := c.input(lastContiguous, shape...)
		inPlace(dst)
		return func(kernels device.Kernels) { kernels.MatMul(dst.Tensor, a.Tensor, b.Tensor, accumulate) },
			func() {
				want, scale := make([]float64, dst.Len()), make([]float64, dst.Len())
				for i := range want {
					column, row, g := i%n, i/n%m, i/n/m
					if accumulate {
						want[i] = dst.values[i]
					}
					scale[i] = math.Abs(want[i])
					for p := range k {
						product := a.values[(g*m+row)*k+p] * b.values[(g*k+p)*n+column]
						want[i] += product
						scale[i] += math.Abs(product)
					}
				}
				c.close(dst, want, scale, 2+math.Sqrt(float64(k)))
			}
	}
}

// matrices returns an operand of a product: transposed or not, and in a batch
// perhaps one matrix repeated.
func (c *scene) matrices(batched bool, batch, rows, columns int) *operand {
	transposed, repeated := c.flag("transposed"), batched && c.flag("repeated")
	shape := []int{batch, rows, columns}
	if repeated {
		shape[0] = 1
	}
	if transposed {
		shape[1], shape[2] = columns, rows
	}
	if !batched {
		shape = shape[1:]
	}
	o := c.input(lastContiguous, shape...)
	view := *o
	if transposed {
		view.Tensor = view.Transpose(len(shape)-2, len(shape)-1)
	}
	if repeated {
		view.Tensor = view.Broadcast(batch, rows, columns)
	}
	view.values = make([]float64, view.Len())
	each(view.Tensor, func(i int, at int64) { view.values[i] = getNumber(c.dtype, o.bytes[at:]) })
	return &view
}
