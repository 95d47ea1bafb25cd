package devicetest

import (
	"math"
	"slices"

	"github.com/lethe-go/lethe/device"
)

func groupedTests() []kernelTest {
	return []kernelTest{
		{"GroupedMatMul", groupedMatMulTest},
		{"GroupedMatMulWeight", groupedMatMulWeightTest},
	}
}

// groupedMatMulTest also computes each group by MatMul, whose bits it demands.
func groupedMatMulTest(c *scene) (func(device.Kernels), func()) {
	experts, rows := c.extent("experts", 1, 5, 9), c.extent("rows", 0, 60, 700)
	n, k := c.extent("n", 0, 40, 150), c.extent("k", 0, 40, 300)
	counts := c.inputOf(device.Int32, contiguous, c.loads(experts, rows), experts)
	a, b := c.input(lastContiguous, rows, k), c.matrices(true, experts, k, n)
	dst, alone := c.output(lastContiguous, rows, n), c.output(lastContiguous, rows, n)
	return func(kernels device.Kernels) {
			kernels.GroupedMatMul(dst.Tensor, a.Tensor, b.Tensor, counts.Tensor)
			first := 0
			for e := range experts {
				last := first + int(counts.values[e])
				kernels.MatMul(alone.Slice(0, first, last), a.Slice(0, first, last), b.Index(e), false)
				first = last
			}
		},
		func() {
			c.equalBits(dst, alone)
			want, scale := make([]float64, rows*n), make([]float64, rows*n)
			for row, e := range expertOfRows(counts) {
				for i, x := range matrixRow(a, row) {
					for j := range n {
						product := x * b.values[(e*k+i)*n+j]
						want[row*n+j] += product
						scale[row*n+j] += math.Abs(product)
					}
				}
			}
			c.close(dst, want, scale, 2+math.Sqrt(float64(k)))
		}
}

func groupedMatMulWeightTest(c *scene) (func(device.Kernels), func()) {
	experts, rows := c.extent("experts", 1, 5, 9), c.extent("rows", 0, 60, 700)
	m, n := c.extent("m", 0, 40, 150), c.extent("n", 0, 40, 90)
	counts := c.inputOf(device.Int32, contiguous, c.loads(experts, rows), experts)
	a, b := c.input(lastContiguous, rows, m), c.input(lastContiguous, rows, n)
	dst, alone := c.output(lastContiguous, experts, m, n), c.output(lastContiguous, experts, m, n)
	return func(kernels device.Kernels) {
			kernels.GroupedMatMulWeight(dst.Tensor, a.Tensor, b.Tensor, counts.Tensor)
			first := 0
			for e := range experts {
				last := first + int(counts.values[e])
				kernels.MatMul(alone.Index(e), a.Slice(0, first, last).Transpose(0, 1), b.Slice(0, first, last), false)
				first = last
			}
		},
		func() {
			c.equalBits(dst, alone)
			want, scale := make([]float64, experts*m*n), make([]float64, experts*m*n)
			for row, e := range expertOfRows(counts) {
				for i, x := range matrixRow(a, row) {
					for j, y := range matrixRow(b, row) {
						want[(e*m+i)*n+j] += x * y
						scale[(e*m+i)*n+j] += math.Abs(x * y)
					}
				}
			}
			c.close(dst, want, scale, 2+math.Sqrt(float64(rows)))
		}
}

// expertOfRows lists the expert of each row.
func expertOfRows(counts *operand) []int {
	var of []int
	for e, n := range counts.values {
		of = append(of, slices.Repeat([]int{e}, int(n))...)
	}
	return of
}

// equalBits fails unless two tensors hold the same numbers.
func (c *scene) equalBits(x, y *operand) {
	c.t.Helper()
	if !slices.Equal(c.read(x), c.read(y)) {
		c.t.Errorf("the rows of a group have other bits than its product alone")
	}
}

// routingGradients are central differences of the kernels that rows travel by.
var routingGradients = []gradientTest{
	{"CombineRows", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		src, weight := c.input(lastContiguous, 8, 5), c.input(contiguous, 4, 2)
		order, position := c.permutation(8)
		y, dy = c.output(lastContiguous, 4, 5), c.input(lastContiguous, 4, 5)
		dSrc, dWeight := c.output(lastContiguous, 8, 5), c.output(contiguous, 4, 2)
		return y, []*operand{src, weight}, dy, []*operand{dSrc, dWeight},
			func(k device.Kernels) { k.CombineRows(y.Tensor, src.Tensor, position.Tensor, weight.Tensor) },
			func(k device.Kernels) {
				k.CombineRowsBackward(dSrc.Tensor, dWeight.Tensor, src.Tensor, position.Tensor, order.Tensor, weight.Tensor, dy.Tensor)
			}
	}},
	{"GatherRows", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		in := c.input(lastContiguous, 4, 5)
		order, position := c.permutation(8)
		y, dy = c.output(lastContiguous, 8, 5), c.input(lastContiguous, 8, 5)
		dIn := c.output(lastContiguous, 4, 5)
		return y, []*operand{in}, dy, []*operand{dIn},
			func(k device.Kernels) { k.GatherRows(y.Tensor, in.Tensor, order.Tensor, 2) },
			func(k device.Kernels) { k.CombineRows(dIn.Tensor, dy.Tensor, position.Tensor, device.Tensor{}) }
	}},
	{"GatherColumns", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		in, ids := c.input(lastContiguous, 4, 5), c.ids(contiguous, 5, 4, 3)
		y, dy = c.output(lastContiguous, 4, 3), c.input(lastContiguous, 4, 3)
		dIn := c.output(lastContiguous, 4, 5)
		return y, []*operand{in}, dy, []*operand{dIn},
			func(k device.Kernels) { k.GatherColumns(y.Tensor, in.Tensor, ids.Tensor) },
			func(k device.Kernels) { k.ScatterColumns(dIn.Tensor, dy.Tensor, ids.Tensor) }
	}},
	{"GroupedMatMul", func(c *scene) (y *operand, x []*operand, dy *operand, dx []*operand, forward, backward func(k device.Kernels)) {
		a, b := c.input(lastContiguous, 7, 3), c.input(lastContiguous, 3, 3, 4)
		counts := c.inputOf(device.Int32, contiguous, []float64{2, 0, 5}, 3)
		y, dy = c.output(lastContiguous, 7, 4), c.input(lastContiguous, 7, 4)
		da, db := c.output(lastContiguous, 7, 3), c.output(lastContiguous, 3, 3, 4)
		return y, []*operand{a, b}, dy, []*operand{da, db},
			func(k device.Kernels) { k.GroupedMatMul(y.Tensor, a.Tensor, b.Tensor, counts.Tensor) },
			func(k device.Kernels) {
				k.GroupedMatMul(da.Tensor, dy.Tensor, b.Transpose(1, 2), counts.Tensor)
				k.GroupedMatMulWeight(db.Tensor, a.Tensor, dy.Tensor, counts.Tensor)
			}
	}},
}
