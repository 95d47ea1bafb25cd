package collectivetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// plan of an exchange: rows[from][to][column].
type plan [][][]int32

// newPlan draws an uneven one. Its kind cycles through the extremes: nothing at all, all
// rows to one rank, a rank that receives nothing, a rank that sends nothing.
func newPlan(r *rand.Rand, size, columns, most, round int) plan {
	p := make(plan, size)
	chosen := r.IntN(size)
	for from := range p {
		p[from] = make([][]int32, size)
		for to := range p[from] {
			p[from][to] = make([]int32, columns)
			for c := range columns {
				n := int32(r.IntN(most + 1))
				switch kind := round % 6; {
				case kind == 0, kind == 1 && to != chosen, kind == 2 && to == chosen, kind == 3 && from == chosen:
					n = 0
				}
				p[from][to][c] = n
			}
		}
	}
	return p
}

func (p plan) rows(from, to int) int {
	n := 0
	for _, c := range p[from][to] {
		n += int(c)
	}
	return n
}

// side is what one rank brings to an exchange, with room for the largest plan.
type side struct {
	in, out, send, receive device.Tensor
	most                   int
}

func newSide(d device.DType, size, columns, most int, extents ...int) *side {
	room := append([]int{size * columns * most}, extents...)
	return &side{Tensor(d, room...), Tensor(d, room...), Tensor(device.Int32, size, columns), Tensor(device.Int32, size, columns), most}
}

// prepare fills the tensors of a rank for a plan.
func (s *side) prepare(p plan, rank, round int) {
	sent, received := 0, 0
	for r := range p {
		copy(device.Elements[int32](s.send.Index(r)), p[rank][r])
		copy(device.Elements[int32](s.receive.Index(r)), p[r][rank])
		sent, received = sent+p.rows(rank, r), received+p.rows(r, rank)
	}
	s.in, s.out = s.in.WithRows(sent), s.out.WithRows(received)
	row := rowBytes(s.in)
	b := bytes(s.in)
	for to := range p {
		n := p.rows(rank, to) * row
		for i := range n {
			b[i] = mark(rank, to, round, i)
		}
		b = b[n:]
	}
	clear(bytes(s.out))
}

// check reports a byte that is not the one that was sent.
func (s *side) check(p plan, rank, round int) error {
	b, row := bytes(s.out), rowBytes(s.out)
	for from := range p {
		n := p.rows(from, rank) * row
		for i := range n {
			if want := mark(from, rank, round, i); b[i] != want {
				return fmt.Errorf("round %d: byte %d from rank %d is %d, want %d", round, i, from, b[i], want)
			}
		}
		b = b[n:]
	}
	return nil
}

func (s *side) exchange(ctx context.Context, g collective.Group) error {
	return g.AllToAll(ctx, s.out, s.in, s.receive, s.send)
}

func rowBytes(t device.Tensor) int {
	n := t.DType().Size()
	for i := 1; i < t.Rank(); i++ {
		n *= t.Dim(i)
	}
	return n
}

func (s suite) allToAll() {
	groups := s.group(patience)
	for i, d := range dtypes {
		for _, extents := range [][]int{nil, {3}, {2, 5}, {0}} {
			columns := 1 + i%3
			r := rand.New(rand.NewPCG(uint64(s.size), uint64(i)))
			for round := range 12 {
				p := newPlan(r, s.size, columns, 4, round)
				s.must(groups, func(g collective.Group) error {
					side := newSide(d, s.size, columns, 4, extents...)
					side.prepare(p, g.Rank(), round)
					if err := side.exchange(context.Background(), g); err != nil {
						return err
					}
					scribble(side.in) // the others have their rows by now
					return side.check(p, g.Rank(), round)
				})
			}
		}
	}
}

func (s suite) equalParts() {
	groups := s.group(patience)
	for _, n := range []int{0, 1, 3} {
		s.must(groups, func(g collective.Group) error {
			in, out := Tensor(device.Int64, s.size*n, 2), Tensor(device.Int64, s.size*n, 2)
			for i := range device.Elements[int64](in) {
				device.Elements[int64](in)[i] = int64(1000*g.Rank() + i)
			}
			if err := g.AllToAll(context.Background(), out, in, device.Tensor{}, device.Tensor{}); err != nil {
				return err
			}
			for i, v := range device.Elements[int64](out) {
				from, at := i/(2*n), i%(2*n)
				if want := int64(1000*from + g.Rank()*2*n + at); v != want {
					return fmt.Errorf("%d rows each: element %d is %d, want %d", n, i, v, want)
				}
			}
			return nil
		})
	}
}

// randomExchanges has every rank sleep when it likes.
func (s suite) randomExchanges() {
	const rounds, columns, most = 1000, 2, 9
	groups := s.group(patience)
	sides := make([]*side, s.size)
	plans := make([]plan, rounds)
	r := rand.New(rand.NewPCG(5, 7))
	for i := range plans {
		plans[i] = newPlan(r, s.size, columns, most, i)
	}
	for rank := range sides {
		sides[rank] = newSide(device.Float32, s.size, columns, most, 3)
	}
	exchange := func(from, to int) {
		s.must(groups, func(g collective.Group) error {
			rank := g.Rank()
			nap := rand.New(rand.NewPCG(uint64(rank), uint64(from)))
			for i := from; i < to; i++ {
				sides[rank].prepare(plans[i], rank, i)
				if nap.IntN(4) == 0 || i%s.size == rank { // someone is always late
					time.Sleep(time.Duration(nap.IntN(200)) * time.Microsecond)
				}
				if err := sides[rank].exchange(context.Background(), g); err != nil {
					return fmt.Errorf("round %d: %w", i, err)
				}
				if err := sides[rank].check(plans[i], rank, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	exchange(0, 100)
	before := liveBytes()
	exchange(100, rounds)
	if after := liveBytes(); after > before+16<<10 {
		s.t.Errorf("the heap grew from %d to %d bytes in %d exchanges", before, after, rounds-100)
	}
}

func liveBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// allocations counts those of a warm collective, on all ranks together.
func (s suite) allocations() {
	groups := s.group(patience)
	ctx := context.Background()
	p := newPlan(rand.New(rand.NewPCG(1, 1)), s.size, 2, 3, 5)
	type own struct {
		*side
		sum, all, part device.Tensor
	}
	owns := make([]own, s.size)
	for r := range owns {
		owns[r] = own{newSide(device.Float32, s.size, 2, 3, 2), Tensor(device.Float32, 700), Tensor(device.Float32, 7*s.size), Tensor(device.Float32, 7)}
		owns[r].prepare(p, r, 0)
	}
	calls := map[string]func(g collective.Group, o *own) error{
		"AllToAll":      func(g collective.Group, o *own) error { return o.exchange(ctx, g) },
		"AllReduce":     func(g collective.Group, o *own) error { return g.AllReduce(ctx, o.sum) },
		"AllGather":     func(g collective.Group, o *own) error { return g.AllGather(ctx, o.all, o.part) },
		"ReduceScatter": func(g collective.Group, o *own) error { return g.ReduceScatter(ctx, o.part, o.all) },
		"Broadcast":     func(g collective.Group, o *own) error { return g.Broadcast(ctx, o.sum, s.size-1) },
		"Barrier":       func(g collective.Group, _ *own) error { return g.Barrier(ctx) },
	}
	for name, call := range inOrder(calls) {
		start, done := make([]chan bool, len(groups)), make(chan error, len(groups))
		for i, g := range groups {
			start[i] = make(chan bool)
			go func() {
				for range start[i] {
					done <- call(g, &owns[g.Rank()])
				}
			}()
		}
		n := testing.AllocsPerRun(20, func() {
			for _, c := range start {
				c <- true
			}
			for range start {
				if err := <-done; err != nil {
					s.t.Errorf("%s: %v", name, err)
				}
			}
		})
		for _, c := range start {
			close(c)
		}
		if n != 0 {
			s.t.Errorf("a warm %s allocates %v times", name, n)
		}
	}
}
