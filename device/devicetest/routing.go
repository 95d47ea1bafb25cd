package devicetest

import (
	"math"
	"sort"

	"github.com/lethe-go/lethe/device"
)

func routingTests() []kernelTest {
	return []kernelTest{
		{"TopK", topKTest(false)},
		{"TopK/groups", topKTest(true)},
		{"GatherColumns", gatherColumnsTest},
		{"ScatterColumns", scatterColumnsTest},
		{"SortByExpert", sortByExpertTest},
		{"GatherRows", gatherRowsTest},
		{"CombineRows", combineRowsTest},
		{"CombineRowsBackward", combineRowsBackwardTest},
		{"ExpertMajor", expertMajorTest},
		{"BalanceBias", balanceBiasTest},
	}
}

// topKTest draws scores from few values, so that many are equal, and others that
// are no numbers.
func topKTest(grouped bool) func(c *scene) (func(device.Kernels), func()) {
	return func(c *scene) (func(device.Kernels), func()) {
		tokens, groups, limited := c.extent("tokens", 0, 6, 700), 1, 1
		width := c.extent("columns of a group", 2, 5, 17)
		if grouped {
			groups = c.extent("groups", 2, 5, 8)
			limited = c.extent("limited", 1, groups, 3)
		}
		experts := width * groups
		k := c.extent("k", 0, width*limited, 6)
		odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}
		levels := c.extent("levels", 1, 4, 4)
		next := func() float64 { return float64(c.rand.IntN(levels)) / 4 }
		if c.flag("odd") {
			next = func() float64 { return append(odd, c.rand.NormFloat64(), 1)[c.rand.IntN(5)] }
		}
		scores := c.inputWith(lastContiguous, next, tokens, experts)
		ids := c.outputOf(device.Int32, contiguous, tokens, k)
		var bias device.Tensor
		biased := append([]float64(nil), scores.values...)
		if c.flag("bias") {
			b := c.inputWith(contiguous, func() float64 { return float64(c.rand.IntN(3)) / 10 }, experts)
			bias = b.Tensor
			for i := range biased {
				biased[i] = roundTo(c.dtype, biased[i]+b.values[i%experts])
			}
		}
		return func(k device.Kernels) { k.TopK(ids.Tensor, scores.Tensor, bias, groups, limited) },
			func() {
				var want []float64
				for t := range tokens {
					want = append(want, topK(c.dtype, biased[t*experts:(t+1)*experts], k, groups, limited)...)
				}
				c.close(ids, want, nil, 0)
			}
	}
}

// topK is the reference of TopK for one token.
func topK(d device.DType, scores []float64, k, groups, limited int) []float64 {
	width := len(scores) / groups
	groupScores := make([]float64, groups)
	for g := range groupScores {
		of := scores[g*width : (g+1)*width]
		order := descending(of)
		groupScores[g] = roundTo(d, of[order[0]]+of[order[1]])
	}
	allowed := make([]bool, groups)
	for _, g := range descending(groupScores)[:limited] {
		allowed[g] = true
	}
	var ids []float64
	for _, i := range descending(scores) {
		if allowed[i/width] && len(ids) < k {
			ids = append(ids, float64(i))
		}
	}
	return ids
}

// descending sorts stably, NaN last.
func descending(values []float64) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool {
		a, b := values[order[i]], values[order[j]]
		return a > b || math.IsNaN(b) && !math.IsNaN(a)
	})
	return order
}

func gatherColumnsTest(c *scene) (func(device.Kernels), func()) {
	tokens, experts, k := c.extent("tokens", 0, 6, 3000), c.extent("experts", 1, 6, 40), c.extent("k", 0, 4, 5)
	src, ids := c.input(lastContiguous, tokens, experts), c.ids(contiguous, experts, tokens, k)
	dst := c.output(lastContiguous, tokens, k)
	return func(k device.Kernels) { k.GatherColumns(dst.Tensor, src.Tensor, ids.Tensor) },
		func() {
			want := make([]float64, tokens*k)
			for i, id := range ids.values {
				want[i] = src.values[i/k*experts+int(id)]
			}
			c.close(dst, want, nil, 0)
		}
}

func scatterColumnsTest(c *scene) (func(device.Kernels), func()) {
	tokens, experts, k := c.extent("tokens", 0, 6, 3000), c.extent("experts", 1, 6, 40), c.extent("k", 0, 4, 5)
	src, ids := c.input(lastContiguous, tokens, k), c.ids(contiguous, experts, tokens, k)
	dst := c.output(lastContiguous, tokens, experts)
	return func(k device.Kernels) { k.ScatterColumns(dst.Tensor, src.Tensor, ids.Tensor) },
		func() {
			want := make([]float64, tokens*experts)
			for i, id := range ids.values {
				at := &want[i/k*experts+int(id)]
				*at = roundTo(c.dtype, *at+src.values[i])
			}
			c.close(dst, want, nil, 0)
		}
}

// loads draws how many of the rows each expert has: some have none, one may have all.
func (c *scene) loads(experts, rows int) []float64 {
	loads := make([]float64, experts)
	if experts > 0 && c.small != nil && c.flag("all to one") {
		loads[c.rand.IntN(experts)] = float64(rows)
		return loads
	}
	busy := experts
	if c.small == nil {
		busy--
	}
	for range rows {
		loads[int(float64(busy)*math.Pow(c.rand.Float64(), 2.5))]++
	}
	c.rand.Shuffle(experts, func(i, j int) { loads[i], loads[j] = loads[j], loads[i] })
	return loads
}

func sortByExpertTest(c *scene) (func(device.Kernels), func()) {
	experts, tokens, k := c.extent("experts", 1, 6, 30), c.extent("tokens", 0, 6, 2000), c.extent("k", 1, 3, 3)
	rows := tokens * k
	var drawn []float64
	for e, n := range c.loads(experts, rows) {
		for range int(n) {
			drawn = append(drawn, float64(e))
		}
	}
	c.rand.Shuffle(rows, func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	ids := c.inputOf(device.Int32, contiguous, drawn, tokens, k)
	order, position := c.outputOf(device.Int32, contiguous, rows), c.outputOf(device.Int32, contiguous, rows)
	counts := c.outputOf(device.Int32, contiguous, experts)
	return func(k device.Kernels) { k.SortByExpert(order.Tensor, position.Tensor, counts.Tensor, ids.Tensor) },
		func() {
			var wantOrder []float64
			wantCounts, wantPosition := make([]float64, experts), make([]float64, rows)
			for e := range experts {
				for i, id := range ids.values {
					if int(id) == e {
						wantPosition[i] = float64(len(wantOrder))
						wantOrder = append(wantOrder, float64(i))
						wantCounts[e]++
					}
				}
			}
			c.close(order, wantOrder, nil, 0)
			c.close(position, wantPosition, nil, 0)
			c.close(counts, wantCounts, nil, 0)
		}
}

func gatherRowsTest(c *scene) (func(device.Kernels), func()) {
	rows, width, divisor := c.extent("rows", 1, 6, 90), c.extent("width", 0, 6, 131), c.extent("divisor", 1, 3, 4)
	src := c.input(lastContiguous, rows, width)
	index := c.ids(contiguous, rows*divisor, c.extent("indices", 0, 9, 500))
	dst := c.output(lastContiguous, index.Len(), width)
	return func(k device.Kernels) { k.GatherRows(dst.Tensor, src.Tensor, index.Tensor, divisor) },
		func() {
			var want []float64
			for _, i := range index.values {
				want = append(want, matrixRow(src, int(i)/divisor)...)
			}
			c.close(dst, want, nil, 0)
		}
}

func matrixRow(o *operand, i int) []float64 { return o.values[i*o.Dim(1) : (i+1)*o.Dim(1)] }

// combineWeight returns weights, or the zero Tensor and ones.
func (c *scene) combineWeight(tokens, k int) (device.Tensor, []float64) {
	if c.flag("weight") {
		w := c.input(contiguous, tokens, k)
		return w.Tensor, w.values
	}
	ones := make([]float64, tokens*k)
	for i := range ones {
		ones[i] = 1
	}
	return device.Tensor{}, ones
}

func combineRowsTest(c *scene) (func(device.Kernels), func()) {
	tokens, k, width := c.extent("tokens", 0, 6, 400), c.extent("k", 0, 4, 5), c.extent("width", 0, 6, 131)
	src := c.input(lastContiguous, c.extent("rows", 1, 6, 700), width)
	position, dst := c.ids(contiguous, src.Dim(0), tokens*k), c.output(lastContiguous, tokens, width)
	weight, weights := c.combineWeight(tokens, k)
	return func(k device.Kernels) { k.CombineRows(dst.Tensor, src.Tensor, position.Tensor, weight) },
		func() {
			want, scale := make([]float64, tokens*width), make([]float64, tokens*width)
			for i, p := range position.values {
				for d, x := range matrixRow(src, int(p)) {
					want[i/k*width+d] += weights[i] * x
					scale[i/k*width+d] += math.Abs(weights[i] * x)
				}
			}
			c.close(dst, want, scale, float64(k))
		}
}

// permutation returns an order of rows and its inverse.
func (c *scene) permutation(rows int) (order, position *operand) {
	to, from := make([]float64, rows), make([]float64, rows)
	for n, i := range c.rand.Perm(rows) {
		to[n], from[i] = float64(i), float64(n)
	}
	return c.inputOf(device.Int32, contiguous, to, rows), c.inputOf(device.Int32, contiguous, from, rows)
}

func combineRowsBackwardTest(c *scene) (func(device.Kernels), func()) {
	tokens, k, width := c.extent("tokens", 0, 6, 400), c.extent("k", 0, 4, 5), c.extent("width", 0, 6, 131)
	rows := tokens * k
	src, dy := c.input(lastContiguous, rows, width), c.input(lastContiguous, tokens, width)
	order, position := c.permutation(rows)
	weight, weights := c.combineWeight(tokens, k)
	dsrc, dweight := c.output(lastContiguous, rows, width), c.output(contiguous, tokens, k)
	outputs := c.extent("outputs", 1, 3, 3)
	rowsOut, weightOut := dsrc.Tensor, dweight.Tensor
	if outputs&1 == 0 {
		rowsOut = device.Tensor{}
	}
	if outputs&2 == 0 {
		weightOut = device.Tensor{}
	}
	return func(k device.Kernels) {
			k.CombineRowsBackward(rowsOut, weightOut, src.Tensor, position.Tensor, order.Tensor, weight, dy.Tensor)
		},
		func() {
			wantRows, wantWeight, scale := make([]float64, rows*width), make([]float64, rows), make([]float64, rows)
			for i, p := range position.values {
				for d, x := range matrixRow(src, int(p)) {
					g := dy.values[i/k*width+d]
					wantRows[int(p)*width+d] = weights[i] * g
					wantWeight[i] += x * g
					scale[i] += math.Abs(x * g)
				}
			}
			if !rowsOut.IsZero() {
				c.close(dsrc, wantRows, nil, 1)
			}
			if !weightOut.IsZero() {
				c.close(dweight, wantWeight, scale, 4)
			}
		}
}

func expertMajorTest(c *scene) (func(device.Kernels), func()) {
	ranks, experts := c.extent("ranks", 1, 4, 5), c.extent("experts", 1, 5, 12)
	rows := c.extent("rows", 0, 20, 5000)
	counts := c.inputOf(device.Int32, contiguous, c.loads(ranks*experts, rows), ranks, experts)
	order, position := c.outputOf(device.Int32, contiguous, rows), c.outputOf(device.Int32, contiguous, rows)
	totals := c.outputOf(device.Int32, contiguous, experts)
	return func(k device.Kernels) { k.ExpertMajor(order.Tensor, position.Tensor, totals.Tensor, counts.Tensor) },
		func() {
			var wantOrder []float64
			wantTotals, wantPosition := make([]float64, experts), make([]float64, rows)
			for e := range experts {
				row := 0
				for block, n := range counts.values {
					for range int(n) {
						if block%experts == e {
							wantPosition[row] = float64(len(wantOrder))
							wantOrder = append(wantOrder, float64(row))
							wantTotals[e]++
						}
						row++
					}
				}
			}
			c.close(order, wantOrder, nil, 0)
			c.close(position, wantPosition, nil, 0)
			c.close(totals, wantTotals, nil, 0)
		}
}

func balanceBiasTest(c *scene) (func(device.Kernels), func()) {
	experts := c.extent("experts", 0, 6, 64)
	bias := inPlace(c.input(contiguous, experts))
	counts := c.inputOf(c.dtype, contiguous, c.loads(experts, 4*experts), experts)
	const step = 1e-3
	return func(k device.Kernels) { k.BalanceBias(bias.Tensor, counts.Tensor, step) },
		func() {
			d, mean := make([]float64, experts), 0.0
			for e, n := range counts.values {
				if n != 4 {
					d[e] = math.Copysign(step, 4-n)
				}
				mean += d[e] / float64(experts)
			}
			for e := range d {
				d[e] += bias.values[e] - mean
			}
			c.close(bias, d, peaks(d), 2)
		}
}
