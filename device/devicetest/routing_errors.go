package devicetest

import "github.com/lethe-go/lethe/device"

// routingErrors are bad ids and counts.
var routingErrors = []errorTest{
	{"GatherColumns", "columns: id 5 at index 3 is outside [0, 5)", func(c *scene) func(k device.Kernels) {
		dst, src, ids := c.output(contiguous, 4, 2), c.input(contiguous, 4, 5), badIDs(c, 3, 5, 4, 2)
		return func(k device.Kernels) { k.GatherColumns(dst.Tensor, src.Tensor, ids.Tensor) }
	}},
	{"ScatterColumns", "columns: id -2 at index 7 is outside [0, 5)", func(c *scene) func(k device.Kernels) {
		dst, src, ids := c.output(contiguous, 4, 5), c.input(contiguous, 4, 2), badIDs(c, 7, -2, 4, 2)
		return func(k device.Kernels) { k.ScatterColumns(dst.Tensor, src.Tensor, ids.Tensor) }
	}},
	{"SortByExpert", "sort by expert: id 4 at index 2 is outside [0, 4)", func(c *scene) func(k device.Kernels) {
		ids, counts := badIDs(c, 2, 4, 6), c.outputOf(device.Int32, contiguous, 4)
		order, position := c.outputOf(device.Int32, contiguous, 6), c.outputOf(device.Int32, contiguous, 6)
		return func(k device.Kernels) {
			k.SortByExpert(order.Tensor, position.Tensor, counts.Tensor, ids.Tensor)
		}
	}},
	{"GatherRows", "gather rows: index -1 at index 3 is outside [0, 8)", func(c *scene) func(k device.Kernels) {
		dst, src, index := c.output(contiguous, 6, 3), c.input(contiguous, 4, 3), badIDs(c, 3, -1, 6)
		return func(k device.Kernels) { k.GatherRows(dst.Tensor, src.Tensor, index.Tensor, 2) }
	}},
	{"CombineRows", "combine rows: position 8 at index 5 is outside [0, 8)", func(c *scene) func(k device.Kernels) {
		dst, src, position := c.output(contiguous, 3, 5), c.input(contiguous, 8, 5), badIDs(c, 5, 8, 6)
		return func(k device.Kernels) { k.CombineRows(dst.Tensor, src.Tensor, position.Tensor, device.Tensor{}) }
	}},
	{"CombineRowsBackward/order", "combine rows: index 6 at index 1 is outside [0, 6)", func(c *scene) func(k device.Kernels) {
		dsrc, dy, order := c.output(contiguous, 6, 5), c.input(contiguous, 3, 5), badIDs(c, 1, 6, 6)
		var none device.Tensor
		return func(k device.Kernels) {
			k.CombineRowsBackward(dsrc.Tensor, none, none, none, order.Tensor, none, dy.Tensor)
		}
	}},
	{"CombineRowsBackward/position", "combine rows: position -1 at index 4 is outside [0, 6)", func(c *scene) func(k device.Kernels) {
		dweight, src, dy := c.output(contiguous, 3, 2), c.input(contiguous, 6, 5), c.input(contiguous, 3, 5)
		position := badIDs(c, 4, -1, 6)
		var none device.Tensor
		return func(k device.Kernels) {
			k.CombineRowsBackward(none, dweight.Tensor, src.Tensor, position.Tensor, none, none, dy.Tensor)
		}
	}},
	{"ExpertMajor", "expert-major: counts add up to 7, not to the number of rows 6", func(c *scene) func(k device.Kernels) {
		counts, totals := badIDs(c, 2, 7, 2, 3), c.outputOf(device.Int32, contiguous, 3)
		order, position := c.outputOf(device.Int32, contiguous, 6), c.outputOf(device.Int32, contiguous, 6)
		return func(k device.Kernels) {
			k.ExpertMajor(order.Tensor, position.Tensor, totals.Tensor, counts.Tensor)
		}
	}},
	{"GroupedMatMul", "grouped matmul: count -3 at index 1 is negative", func(c *scene) func(k device.Kernels) {
		dst, a, b := c.output(contiguous, 6, 4), c.input(contiguous, 6, 5), c.input(contiguous, 3, 5, 4)
		counts := c.inputOf(device.Int32, contiguous, []float64{9, -3, 0}, 3)
		return func(k device.Kernels) { k.GroupedMatMul(dst.Tensor, a.Tensor, b.Tensor, counts.Tensor) }
	}},
	{"GroupedMatMulWeight", "grouped matmul weight: counts add up to 5, not to the number of rows 6", func(c *scene) func(k device.Kernels) {
		dst, a, b := c.output(contiguous, 3, 5, 4), c.input(contiguous, 6, 5), c.input(contiguous, 6, 4)
		counts := badIDs(c, 1, 5, 3)
		return func(k device.Kernels) { k.GroupedMatMulWeight(dst.Tensor, a.Tensor, b.Tensor, counts.Tensor) }
	}},
}

// indexable fails where an int32 output holds what is no index of the longest one.
func (c *scene) indexable() {
	c.t.Helper()
	longest := 0
	for _, o := range c.operands {
		if o.output && o.DType() == device.Int32 {
			longest = max(longest, o.Len())
		}
	}
	for _, o := range c.operands {
		if !o.output || o.DType() != device.Int32 {
			continue
		}
		for i, x := range c.read(o) {
			if x < 0 || int(x) >= longest && o.Len() == longest {
				c.t.Errorf("element %d of %v is %v after an error", i, o.Tensor, x)
			}
		}
	}
}
