package cpu

import "github.com/lethe-go/lethe/device"

func (q *queue) TopK(ids, scores, bias device.Tensor, groups, limited int) {
	if isFloat32(scores) {
		topK[float32](q, ids, scores, bias, groups, limited)
	} else {
		topK[float64](q, ids, scores, bias, groups, limited)
	}
}

// topKTask's iterations are blocks of rows.
type topKTask[T float] struct {
	q               *queue
	ids             []int32
	scores          matrix[T]
	bias            []T // or none
	k               int
	groups, limited int // limited = groups if all columns take part
	block           int
}

func topK[T float](q *queue, ids, scores, bias device.Tensor, groups, limited int) {
	t := &blocks[T](q).topK
	*t = topKTask[T]{q: q, ids: elements[int32](ids), scores: matrixOf[T](scores), k: ids.Last(), groups: 1, limited: 1}
	if groups > 1 {
		t.groups, t.limited = groups, limited
	}
	experts := t.scores.width
	if !bias.IsZero() {
		same(bias, scores)
		if t.bias = elements[T](bias); len(t.bias) != experts {
			panic("cpu: bias and scores of unequal widths")
		}
	}
	switch {
	case len(t.ids) != t.scores.rows*t.k:
		panic("cpu: top-k of unequal rows")
	case experts%t.groups != 0 || t.groups > 1 && experts/t.groups < 2:
		panic("cpu: top-k with groups that are unequal or of less than two columns")
	case t.limited < 1 || t.limited > t.groups || t.k > experts/t.groups*t.limited:
		panic("cpu: top-k of more columns than take part")
	case len(t.ids) == 0:
		return
	}
	t.block = rowBlock(4 * experts)
	q.reserve(int64(experts+t.k+t.groups) * int64(scores.DType().Size()))
	q.run(ceilDiv(t.scores.rows, t.block), t)
}

func (t *topKTask[T]) do(worker, i int) {
	space := workspace[T](t.q, worker)
	biased, space := space[:t.scores.width], space[t.scores.width:]
	best, groups := space[:t.k], space[t.k:t.k+t.groups]
	for row := i * t.block; row < min(t.scores.rows, (i+1)*t.block); row++ {
		copy(biased, t.scores.row(row))
		if t.bias != nil {
			addScaledRow(t.q.dev.level, biased, biased, t.bias, 1)
		}
		l := topKList[T]{values: best, ids: t.ids[row*t.k : (row+1)*t.k]}
		t.choose(&l, biased, groups)
	}
}

// choose adds the columns of the best groups to the list.
func (t *topKTask[T]) choose(l *topKList[T], biased, scores []T) {
	if t.limited == t.groups {
		l.add(biased, 0)
		return
	}
	width := len(biased) / t.groups
	for g := range scores {
		scores[g] = groupScore(biased[g*width : (g+1)*width])
	}
	for g := range scores {
		if rankOf(scores, g) < t.limited {
			l.add(biased[g*width:(g+1)*width], g*width)
		}
	}
}

// groupScore is the sum of the two largest values.
func groupScore[T float](values []T) T {
	first, second := values[0], values[1]
	if above(second, first) {
		first, second = second, first
	}
	for _, v := range values[2:] {
		if above(v, first) {
			first, second = v, first
		} else if above(v, second) {
			second = v
		}
	}
	return first + second
}

// rankOf is the number of values before value i in descending order.
func rankOf[T float](values []T, i int) int {
	rank := 0
	for j, v := range values {
		if above(v, values[i]) || j < i && !above(values[i], v) {
			rank++
		}
	}
	return rank
}

// above orders numbers with NaN below all.
func above[T float](a, b T) bool { return a > b || b != b && a == a }

// topKList holds the largest values so far, in descending order.
type topKList[T float] struct {
	values []T
	ids    []int32
	n      int
}

// add offers values, which stand in columns from first on.
func (l *topKList[T]) add(values []T, first int) {
	for j, v := range values {
		if l.n < len(l.ids) {
			l.n++
		} else if !above(v, l.values[l.n-1]) {
			continue
		}
		i := l.n - 1
		for ; i > 0 && above(v, l.values[i-1]); i-- {
			l.values[i], l.ids[i] = l.values[i-1], l.ids[i-1]
		}
		l.values[i], l.ids[i] = v, int32(first+j)
	}
}
