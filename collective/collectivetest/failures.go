package collectivetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// call is a collective that one rank makes, odd on the rank that differs.
type call func(ctx context.Context, g collective.Group, odd bool) error

// inOrder ranges over a table in the same order in every process.
func inOrder[V any](table map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if !yield(name, table[name]) {
				return
			}
		}
	}
}

func (s suite) mismatch() {
	sum := func(ctx context.Context, g collective.Group, d device.DType, shape ...int) error {
		return g.AllReduce(ctx, Tensor(d, shape...))
	}
	counts := func(size int, rows ...int32) device.Tensor {
		t := Tensor(device.Int32, size, 1)
		for i := range device.Elements[int32](t) {
			device.Elements[int32](t)[i] = rows[i%len(rows)]
		}
		return t
	}
	for name, c := range inOrder(map[string]call{
		"kind": func(ctx context.Context, g collective.Group, odd bool) error {
			if odd {
				return g.Barrier(ctx)
			}
			return sum(ctx, g, device.Float32, 4)
		},
		"gather and scatter": func(ctx context.Context, g collective.Group, odd bool) error {
			part, whole := Tensor(device.Float32, 1), Tensor(device.Float32, g.Size())
			if odd {
				return g.ReduceScatter(ctx, part, whole)
			}
			return g.AllGather(ctx, whole, part)
		},
		"number": func(ctx context.Context, g collective.Group, odd bool) error {
			if odd {
				return errors.Join(g.Barrier(ctx), sum(ctx, g, device.Float32, 4))
			}
			return errors.Join(sum(ctx, g, device.Float32, 4), g.Barrier(ctx))
		},
		"length": func(ctx context.Context, g collective.Group, odd bool) error {
			if odd {
				return sum(ctx, g, device.Float32, 5)
			}
			return sum(ctx, g, device.Float32, 4)
		},
		"shape": func(ctx context.Context, g collective.Group, odd bool) error {
			if odd {
				return sum(ctx, g, device.Float32, 2, 6)
			}
			return sum(ctx, g, device.Float32, 3, 4)
		},
		"dtype": func(ctx context.Context, g collective.Group, odd bool) error {
			if odd {
				return sum(ctx, g, device.Int32, 4)
			}
			return sum(ctx, g, device.Float32, 4)
		},
		"root": func(ctx context.Context, g collective.Group, odd bool) error {
			if odd {
				return g.Broadcast(ctx, Tensor(device.Float32, 4), 1)
			}
			return g.Broadcast(ctx, Tensor(device.Float32, 4), 0)
		},
		"width of rows": func(ctx context.Context, g collective.Group, odd bool) error {
			width := 3
			if odd {
				width = 2
			}
			in, out := Tensor(device.Float32, g.Size(), width), Tensor(device.Float32, g.Size(), width)
			return g.AllToAll(ctx, out, in, counts(g.Size(), 1), counts(g.Size(), 1))
		},
		"count sent": func(ctx context.Context, g collective.Group, odd bool) error {
			n := g.Size()
			in, out, send := Tensor(device.Float32, n, 2), Tensor(device.Float32, n, 2), counts(n, 1)
			if odd { // one row too many for rank 0, one too few for the last
				device.Elements[int32](send)[0], device.Elements[int32](send)[n-1] = 2, 0
			}
			return g.AllToAll(ctx, out, in, counts(n, 1), send)
		},
		"count received": func(ctx context.Context, g collective.Group, odd bool) error {
			n := g.Size()
			receive := counts(n, 1)
			out := Tensor(device.Float32, n, 2)
			if odd {
				receive, out = counts(n, 1000), Tensor(device.Float32, 1000*n, 2)
			}
			return g.AllToAll(ctx, out, Tensor(device.Float32, n, 2), receive, counts(n, 1))
		},
	}) {
		for odd := range s.size {
			groups := s.group(patience)
			errs := s.each(groups, func(g collective.Group) error { return c(context.Background(), g, g.Rank() == odd) })
			for i, err := range errs {
				if err != nil && !errors.Is(err, collective.ErrMismatch) && !errors.Is(err, collective.ErrAborted) {
					s.t.Errorf("%s: rank %d: %v, want ErrMismatch or ErrAborted", name, groups[i].Rank(), err)
				}
			}
			s.some(name+": says that the ranks disagree", groups, errs, func(err error) bool { return errors.Is(err, collective.ErrMismatch) })
			s.over(groups) // a rank for which all fits learns of it now
		}
	}
}

// wrongCalls are wrong by themselves, whatever the others do.
func (s suite) wrongCalls() {
	two := func(n, m int) device.Tensor {
		t := Tensor(device.Int32, s.size, 1)
		for i := range device.Elements[int32](t) {
			device.Elements[int32](t)[i] = int32(n)
		}
		device.Elements[int32](t)[0] = int32(m)
		return t
	}
	ones := two(1, 1)
	rows := func() device.Tensor { return Tensor(device.Float32, s.size, 2) }
	strided := Tensor(device.Float32, 3, s.size).Transpose(0, 1)
	for name, c := range inOrder(map[string]call{
		"too few rows to send": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllToAll(ctx, rows(), Tensor(device.Float32, s.size-1, 2), ones, ones)
		},
		"too few rows to receive": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllToAll(ctx, Tensor(device.Float32, s.size-1, 2), rows(), ones, ones)
		},
		"negative count": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllToAll(ctx, rows(), Tensor(device.Float32, s.size-2, 2), ones, two(1, -1))
		},
		"counts for other ranks": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllToAll(ctx, rows(), rows(), ones, Tensor(device.Int32, s.size+1, 1))
		},
		"uneven equal parts": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllToAll(ctx, Tensor(device.Float32, s.size+1), Tensor(device.Float32, s.size+1), device.Tensor{}, device.Tensor{})
		},
		"other dtype, same bytes": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllToAll(ctx, Tensor(device.Float64, s.size, 1), rows(), ones, ones)
		},
		"strided rows": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllToAll(ctx, Tensor(device.Float32, s.size, 3), strided, ones, ones)
		},
		"strided sum": func(ctx context.Context, g collective.Group, _ bool) error { return g.AllReduce(ctx, strided) },
		"gather into too little": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllGather(ctx, Tensor(device.Float32, s.size), Tensor(device.Float32, 2))
		},
		"gather into another dtype": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.AllGather(ctx, Tensor(device.Float32, s.size), Tensor(device.Float64, 1))
		},
		"scatter of too little": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.ReduceScatter(ctx, Tensor(device.Float32, 2), Tensor(device.Float32, s.size))
		},
		"no such root": func(ctx context.Context, g collective.Group, _ bool) error {
			return g.Broadcast(ctx, Tensor(device.Float32, 2), s.size)
		},
	}) {
		groups := s.group(patience)
		errs := s.each(groups, func(g collective.Group) error {
			if g.Rank() == 1 {
				return c(context.Background(), g, true)
			}
			return g.AllToAll(context.Background(), rows(), rows(), ones, ones)
		})
		for i, err := range errs {
			if err == nil && groups[i].Rank() == 1 {
				s.t.Errorf("%s: is accepted", name)
			}
		}
		s.ended(groups, errs)
	}
}

func (s suite) timeout() {
	groups := s.group(50 * time.Millisecond)
	last := s.size - 1
	errs := s.each(groups, func(g collective.Group) error {
		if g.Rank() == last {
			return nil // never comes
		}
		return g.AllReduce(context.Background(), Tensor(device.Float32, 3))
	})
	named := func(err error) bool {
		return errors.Is(err, collective.ErrTimeout) && strings.Contains(err.Error(), fmt.Sprintf("[%d]", last))
	}
	for i, err := range errs {
		if r := groups[i].Rank(); r != last && !named(err) && !errors.Is(err, collective.ErrAborted) {
			s.t.Errorf("rank %d: %v, want ErrTimeout that names rank %d, or ErrAborted", r, err, last)
		}
	}
	s.some("says who is missing", groups, errs, named)
	s.comesLate(groups, errs, last)
	s.ended(groups, errs)
}

// comesLate has a rank call when the others have given up.
func (s suite) comesLate(groups []collective.Group, errs []error, rank int) {
	for i, g := range groups {
		if g.Rank() == rank {
			errs[i] = g.AllReduce(context.Background(), Tensor(device.Float32, 3))
		}
	}
}

// changedTimeout shortens the deadline of a group that had a long one.
func (s suite) changedTimeout() {
	groups := s.group(patience)
	s.must(groups, func(g collective.Group) error { return g.Barrier(context.Background()) })
	errs := s.each(groups, func(g collective.Group) error {
		t, ok := g.(collective.Timed)
		if !ok {
			return errors.New("the deadline cannot be changed")
		}
		t.SetTimeout(50 * time.Millisecond)
		if g.Rank() == 0 {
			return nil // never comes
		}
		return g.Barrier(context.Background())
	})
	s.some("gives up after the new deadline", groups, errs, func(err error) bool {
		return errors.Is(err, collective.ErrTimeout) && strings.Contains(err.Error(), "50ms")
	})
	s.comesLate(groups, errs, 0)
}

// slowRank is late by less than the deadline, which counts anew for each collective.
func (s suite) slowRank() {
	groups := s.group(2 * time.Second)
	s.must(groups, func(g collective.Group) error {
		for i := range 40 {
			if i%s.size == g.Rank() {
				time.Sleep(5 * time.Millisecond)
			}
			if err := g.Barrier(context.Background()); err != nil {
				return err
			}
		}
		return nil
	})
}

// cancel ends the context of one rank, while it waits or before it calls.
func (s suite) cancel() {
	for _, before := range []bool{false, true} {
		groups := s.group(0)
		ctx, cancel := context.WithCancelCause(context.Background())
		cause := errors.New("the user has left")
		errs := s.each(groups, func(g collective.Group) error {
			switch {
			case g.Rank() == s.size-1 && before:
				cancel(cause)
				return g.Barrier(ctx)
			case g.Rank() == s.size-1:
				return nil // never comes
			case g.Rank() == 0 && !before:
				time.AfterFunc(5*time.Millisecond, func() { cancel(cause) })
				return g.Barrier(ctx)
			}
			return g.Barrier(context.Background())
		})
		own := 0
		if before {
			own = s.size - 1
		} else {
			s.some("has the context that ended", groups, errs, func(err error) bool { return errors.Is(err, cause) })
			s.comesLate(groups, errs, s.size-1)
		}
		for i, err := range errs {
			r := groups[i].Rank()
			if r == own && !errors.Is(err, cause) {
				s.t.Errorf("the cancelled rank: %v, want its cause", err)
			}
			if r != own && (!errors.Is(err, collective.ErrAborted) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d", own))) {
				s.t.Errorf("rank %d: %v, want ErrAborted that names rank %d", r, err, own)
			}
		}
		s.ended(groups, errs)
	}
}

// cancelRaces ends a context in the middle of exchanges. Who got an error may reuse its
// tensors at once; who got none has the right rows.
func (s suite) cancelRaces() {
	r := rand.New(rand.NewPCG(2, 9))
	for round := range 150 {
		groups := s.group(patience)
		p := newPlan(r, s.size, 1, 400, 5)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Duration(r.IntN(300))*time.Microsecond, cancel)
		victim := r.IntN(s.size)
		errs := s.each(groups, func(g collective.Group) error {
			own := context.Background()
			if g.Rank() == victim {
				own = ctx
			}
			side, sum := newSide(device.Float32, s.size, 1, 400, 4), Tensor(device.Float64, 4000)
			for {
				side.prepare(p, g.Rank(), round)
				if err := side.exchange(own, g); err != nil {
					scribble(side.in)
					scribble(side.out)
					return err
				}
				if err := side.check(p, g.Rank(), round); err != nil {
					return err
				}
				if err := g.AllReduce(own, sum); err != nil {
					scribble(sum)
					return err
				}
			}
		})
		cancel()
		for i, err := range errs {
			rank := groups[i].Rank()
			if rank == victim && !errors.Is(err, context.Canceled) || rank != victim && !errors.Is(err, collective.ErrAborted) {
				s.t.Fatalf("rank %d, where rank %d was cancelled: %v", rank, victim, err)
			}
		}
	}
}

func (s suite) abort() {
	groups := s.group(0)
	cause := errors.New("out of paper")
	errs := s.each(groups, func(g collective.Group) error {
		if g.Rank() == s.size-1 {
			time.Sleep(2 * time.Millisecond)
			g.Abort(cause)
			g.Abort(errors.New("a second cause")) // changes nothing
		}
		return g.AllReduce(context.Background(), Tensor(device.Float32, 8))
	})
	for i, err := range errs {
		if !errors.Is(err, collective.ErrAborted) || !strings.Contains(err.Error(), cause.Error()) || strings.Contains(err.Error(), "second") {
			s.t.Errorf("rank %d: %v, want ErrAborted because %v", groups[i].Rank(), err, cause)
		}
	}
	s.ended(groups, errs)
}
