package collectivetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// fill draws numbers whose sum depends on the order of its terms: large ones that
// cancel, and small ones.
func fill(t device.Tensor, rank int) {
	r := rand.New(rand.NewPCG(uint64(rank), 3))
	for i := range t.Len() {
		v := r.NormFloat64() * math.Pow(10, float64(r.IntN(20)))
		if r.IntN(3) == 0 {
			v = float64(1-2*(rank%2)) * 1e17
		}
		switch t.DType() {
		case device.Float32:
			device.Elements[float32](t)[i] = float32(v)
		case device.Float64:
			device.Elements[float64](t)[i] = v
		case device.Int32:
			device.Elements[int32](t)[i] = int32(r.IntN(1e6)) - 5e5
		case device.Int64:
			device.Elements[int64](t)[i] = int64(r.IntN(1e15)) - 5e14
		}
	}
}

// sumOf is what the sum over all ranks must be, to the bit.
func sumOf(d device.DType, size, n int) device.Tensor {
	sum := Tensor(d, n)
	wide := make([]float64, n)
	whole := make([]int64, n)
	for r := range size {
		t := Tensor(d, n)
		fill(t, r)
		for i := range n {
			switch d {
			case device.Float32:
				wide[i] += float64(device.Elements[float32](t)[i])
			case device.Float64:
				wide[i] += device.Elements[float64](t)[i]
			case device.Int32:
				whole[i] += int64(device.Elements[int32](t)[i])
			case device.Int64:
				whole[i] += device.Elements[int64](t)[i]
			}
		}
	}
	for i := range n {
		switch d {
		case device.Float32:
			device.Elements[float32](sum)[i] = float32(wide[i])
		case device.Float64:
			device.Elements[float64](sum)[i] = wide[i]
		case device.Int32:
			device.Elements[int32](sum)[i] = int32(whole[i])
		case device.Int64:
			device.Elements[int64](sum)[i] = whole[i]
		}
	}
	return sum
}

// sums checks AllReduce and ReduceScatter, around the sizes at which the work is
// divided.
func (s suite) sums() {
	groups := s.group(patience)
	ctx := context.Background()
	for _, d := range summable {
		for _, n := range []int{0, 1, 2, 3, 511, 513, 1500, 5003} {
			want := sumOf(d, s.size, n)
			s.must(groups, func(g collective.Group) error {
				t := Tensor(d, n)
				fill(t, g.Rank())
				if err := g.AllReduce(ctx, t); err != nil {
					return err
				}
				return sameBytes(fmt.Sprintf("sum of %v", t), t, want)
			})
			wantParts := sumOf(d, s.size, n*s.size)
			s.must(groups, func(g collective.Group) error {
				in, out := Tensor(d, s.size*n), Tensor(d, n)
				fill(in, g.Rank())
				if err := g.ReduceScatter(ctx, out, in); err != nil {
					return err
				}
				scribble(in)
				return sameBytes(fmt.Sprintf("part of the sum of %v", in), out, wantParts.Slice(0, g.Rank()*n, (g.Rank()+1)*n))
			})
		}
	}
}

// padded checks parts that reach beyond the end of what is divided: AllGather leaves out what
// does, ReduceScatter makes zeros of it.
func (s suite) padded() {
	groups := s.group(patience)
	ctx := context.Background()
	for _, d := range summable {
		for _, rows := range []int{1, 2, 3, 5, 7, 4001} {
			const width = 3
			n := (rows + s.size - 1) / s.size
			sums := Tensor(d, s.size*n, width)
			copy(bytes(sums), bytes(sumOf(d, s.size, rows*width)))
			s.must(groups, func(g collective.Group) error {
				whole, part := Tensor(d, rows, width), Tensor(d, n, width)
				fill(whole, g.Rank())
				for i := range bytes(part) {
					bytes(part)[i] = 0xFF
				}
				if err := g.ReduceScatter(ctx, part, whole); err != nil {
					return err
				}
				if err := sameBytes(fmt.Sprintf("part of the sum of %v", whole), part, sums.Slice(0, g.Rank()*n, (g.Rank()+1)*n)); err != nil {
					return err
				}
				scribble(part.Slice(0, max(0, min(n, rows-g.Rank()*n)), n)) // what nobody is to get
				if err := g.AllGather(ctx, whole, part); err != nil {
					return err
				}
				scribble(part)
				return sameBytes(fmt.Sprintf("%v of parts", whole), whole, sums.Slice(0, 0, rows))
			})
		}
	}
}

func sameBytes(what string, got, want device.Tensor) error {
	g, w := bytes(got), bytes(want)
	if len(g) != len(w) {
		return fmt.Errorf("%s: %d bytes, want %d", what, len(g), len(w))
	}
	for i := range w {
		if g[i] != w[i] {
			return fmt.Errorf("%s: byte %d is %#x, want %#x", what, i, g[i], w[i])
		}
	}
	return nil
}

func (s suite) unsupportedSums() {
	for _, d := range []device.DType{device.BFloat16, device.Uint8} {
		groups := s.group(patience)
		s.ended(groups, s.each(groups, func(g collective.Group) error { return g.AllReduce(context.Background(), Tensor(d, 4)) }))
	}
}

func (s suite) allGather() {
	groups := s.group(patience)
	for _, d := range dtypes {
		for _, n := range []int{0, 1, 5} {
			s.must(groups, func(g collective.Group) error {
				in, out := Tensor(d, n, 3), Tensor(d, s.size*n, 3)
				for i := range bytes(in) {
					bytes(in)[i] = mark(g.Rank(), 0, n, i)
				}
				if err := g.AllGather(context.Background(), out, in); err != nil {
					return err
				}
				scribble(in)
				for i, b := range bytes(out) {
					size := len(bytes(in))
					if want := mark(i/size, 0, n, i%size); b != want {
						return fmt.Errorf("byte %d is %d, want %d", i, b, want)
					}
				}
				return nil
			})
		}
	}
}

func (s suite) broadcast() {
	groups := s.group(patience)
	for root := range s.size {
		for _, n := range []int{0, 1, 700} {
			s.must(groups, func(g collective.Group) error {
				t := Tensor(dtypes[root], n)
				for i := range bytes(t) {
					bytes(t)[i] = mark(g.Rank(), root, n, i)
				}
				if err := g.Broadcast(context.Background(), t, root); err != nil {
					return err
				}
				for i, b := range bytes(t) {
					if want := mark(root, root, n, i); b != want {
						return fmt.Errorf("byte %d from rank %d is %d, want %d", i, root, b, want)
					}
				}
				return nil
			})
		}
	}
}

// barrier compares when the ranks came with when they left, by the clock of a machine on
// which all of them are.
func (s suite) barrier() {
	const rounds = 100
	groups := s.group(patience)
	came, left := make([][rounds]int64, s.size), make([][rounds]int64, s.size)
	s.must(groups, func(g collective.Group) error {
		for round := range rounds {
			came[g.Rank()][round] = time.Now().UnixNano()
			if err := g.Barrier(context.Background()); err != nil {
				return err
			}
			left[g.Rank()][round] = time.Now().UnixNano()
		}
		return nil
	})
	var last, first [rounds]int64
	for _, said := range s.share(groups, func(g collective.Group) string { return fmt.Sprint(came[g.Rank()], left[g.Rank()]) }) {
		for round, f := range strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(said)) {
			t, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			if r := round % rounds; round < rounds {
				last[r] = max(last[r], t)
			} else if first[r] == 0 || t < first[r] {
				first[r] = t
			}
		}
	}
	for r := range rounds {
		if first[r] < last[r] {
			s.t.Errorf("a rank left barrier %d before another had come", r)
		}
	}
}
