package cpu

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
)

// The orders of rows are made on the calling goroutine: some nanoseconds a row,
// of which the experts' products take microseconds.

func (q *queue) SortByExpert(order, position, counts, ids device.Tensor) {
	o, p, c, e := elements[int32](order), elements[int32](position), elements[int32](counts), elements[int32](ids)
	if len(o) != len(e) || len(p) != len(e) || len(c) == 0 && len(e) > 0 {
		panic("cpu: sort by expert of unequal lengths")
	}
	if i := outside(e, len(c)); i >= 0 {
		q.fail(fmt.Errorf("sort by expert: id %d at index %d is outside [0, %d)", e[i], i, len(c)))
	}
	clear(c)
	for _, id := range e {
		c[expertOf(id, c)]++
	}
	startsOf(c)
	for i, id := range e {
		next := &c[expertOf(id, c)]
		o[*next], p[i] = int32(i), *next
		*next++
	}
	countsOf(c)
}

// expertOf is the id, or 0 for a bad one.
func expertOf(id int32, counts []int32) int32 {
	if uint(int(id)) >= uint(len(counts)) {
		return 0
	}
	return id
}

// startsOf turns numbers of rows into where each group starts.
func startsOf(counts []int32) {
	sum := int32(0)
	for e, n := range counts {
		counts[e] = sum
		sum += n
	}
}

// countsOf turns where each group ends back into numbers of rows.
func countsOf(ends []int32) {
	last := int32(0)
	for e, end := range ends {
		ends[e] = end - last
		last = end
	}
}

func (q *queue) ExpertMajor(order, position, totals, counts device.Tensor) {
	o, p, t, c := elements[int32](order), elements[int32](position), elements[int32](totals), elements[int32](counts)
	if counts.Rank() != 2 || counts.Dim(1) != len(t) || len(p) != len(o) || len(t) == 0 && len(o) > 0 {
		panic("cpu: expert-major order of unequal lengths")
	}
	clear(t)
	if err := groupsFill("expert-major", c, len(o)); err != nil {
		q.fail(err)
		for i := range o {
			o[i], p[i] = int32(i), int32(i)
		}
		if len(t) > 0 {
			t[0] = int32(len(o))
		}
		return
	}
	for i, n := range c {
		t[i%len(t)] += n
	}
	// Rows come in the order of counts; each block moves to where its expert's
	// rows from lower ranks end.
	startsOf(t)
	row := int32(0)
	for i, n := range c {
		next := &t[i%len(t)]
		for range n {
			o[*next], p[row] = row, *next
			*next++
			row++
		}
	}
	countsOf(t)
}

// groupsFill checks that counts are those of a number of rows.
func groupsFill(kernel string, counts []int32, rows int) error {
	sum := 0
	for i, n := range counts {
		if n < 0 {
			return fmt.Errorf("%s: count %d at index %d is negative", kernel, n, i)
		}
		sum += int(n)
	}
	if sum != rows {
		return fmt.Errorf("%s: counts add up to %d, not to the number of rows %d", kernel, sum, rows)
	}
	return nil
}
