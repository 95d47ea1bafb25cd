package devicetest

import (
	"slices"

	"github.com/lethe-go/lethe/device"
)

// kernelTests lists the tests of all kernels.
func kernelTests() []kernelTest {
	return slices.Concat(
		elementwiseTests(),
		reductionTests(),
		rowTests(),
		tableTests(),
		randomTests(),
		optimizerTests(),
		matMulTests(),
		attentionTests(),
		routingTests(),
		groupedTests(),
	)
}

// shape draws the shape of an elementwise kernel's tensors.
func (c *scene) shape() []int {
	if c.small == nil {
		return [][]int{{40000}, {300, 60, 2}, {13, 5, 17, 3, 11}, {2, 18000}}[c.rand.IntN(4)]
	}
	shape := make([]int, c.extent("rank", 0, device.MaxRank, 0))
	for i := range shape {
		shape[i] = c.extent("extent", 0, 5, 0)
	}
	return shape
}

// rows draws the shape of a kernel over the last dimension.
func (c *scene) rows(width int) []int {
	switch {
	case c.small == nil:
		return []int{17, 23, width}
	case c.flag("one row"):
		return []int{width}
	}
	return []int{c.extent("rows", 0, 5, 0), c.extent("rows", 0, 4, 0), width}
}

// mapped applies f to the elements of inputs of one shape.
func mapped(f func(x ...float64) float64, inputs ...*operand) []float64 {
	r := make([]float64, len(inputs[0].values))
	x := make([]float64, len(inputs))
	for i := range r {
		for j := range inputs {
			x[j] = inputs[j].values[i]
		}
		r[i] = f(x...)
	}
	return r
}
