package collective_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run builds and runs a program on every rank at once and returns the Machines.
func run(t *testing.T, ranks int, build func(b *graph.Builder, g collective.Group)) []*graph.Machine {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	t.Cleanup(func() { dev.Close() })
	groups, err := local.New(ranks, local.Options{Name: "data", Timeout: 10 * time.Second})
	check(t, err)
	machines := make([]*graph.Machine, ranks)
	for r, g := range groups {
		store := graph.NewStore(dev, graph.StoreOptions{})
		t.Cleanup(func() { store.Close() })
		b := graph.New(store)
		build(b, g)
		built, err := b.Graph()
		check(t, err)
		p, err := graph.Compile(built, graph.CompileOptions{})
		check(t, err)
		machines[r], err = graph.NewMachine(p)
		check(t, err)
		t.Cleanup(func() { machines[r].Close() })
	}
	errs := make([]error, ranks)
	var running sync.WaitGroup
	for r, m := range machines {
		running.Go(func() {
			for range 2 {
				if err := m.Run(context.Background(), graph.RunOptions{Step: 1}); err != nil {
					errs[r] = err
				}
			}
		})
	}
	running.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return machines
}

// TestAllReduceGradient: every rank's loss depends on every rank's x.
func TestAllReduceGradient(t *testing.T) {
	machines := run(t, 3, func(b *graph.Builder, g collective.Group) {
		x := b.Parameter("x", device.Float64, graph.Constant(float64(10+g.Rank())), 4)
		y := collective.AllReduce(b, g, x).Wait()
		loss := graph.Sum(y)
		for range g.Rank() { // rank r counts it r + 1 times
			loss = graph.Add(loss, graph.Sum(y))
		}
		b.AddLoss("loss", loss)
		b.Output("y", y)
		b.Output("dx", b.Backward(x)[0])
	})
	for r, m := range machines {
		if got := device.Elements[float64](m.Output("y")); !slices.Equal(got, []float64{33, 33, 33, 33}) {
			t.Errorf("rank %d: sum %v, want 33", r, got)
		}
		if got := device.Elements[float64](m.Output("dx")); !slices.Equal(got, []float64{6, 6, 6, 6}) {
			t.Errorf("rank %d: gradient %v, want 1 + 2 + 3", r, got)
		}
	}
}

func TestAllReduceState(t *testing.T) {
	machines := run(t, 2, func(b *graph.Builder, g collective.Group) {
		s := b.State("s", device.Float32, graph.Constant(float64(1+g.Rank())), 3)
		collective.AllReduceState(b, g, s)
	})
	for r, m := range machines {
		// 1 + 2, and in the second run 3 + 3.
		if got := device.Elements[float32](m.Program().Graph.Store.Variable("s").Tensor()); !slices.Equal(got, []float32{6, 6, 6}) {
			t.Errorf("rank %d: %v, want 6", r, got)
		}
	}
}

// TestExchange sends r + 1 rows to rank r and brings their gradient home.
func TestExchange(t *testing.T) {
	const ranks = 2
	machines := run(t, ranks, func(b *graph.Builder, g collective.Group) {
		x := b.Parameter("x", device.Float64, graph.Constant(float64(1+g.Rank())), 3, 2)
		sent := b.Constant("counts", device.Int32, graph.Computed(func(host device.Tensor) {
			copy(device.Elements[int32](host), []int32{1, 2})
		}), ranks, 1)
		received := collective.ExchangeCounts(b, g, sent).Wait()
		send, receive := collective.ToHost(sent), collective.ToHost(received)
		y := collective.AllToAll(b, g, x, receive, send, b.Rows("received", 6), 6).Wait()
		loss := graph.Sum(y)
		for range g.Rank() {
			loss = graph.Add(loss, graph.Sum(y))
		}
		b.AddLoss("loss", loss)
		b.Output("y", y)
		b.Output("dx", b.Backward(x)[0])
	})
	for r, want := range [][]float64{{1, 1, 2, 2}, {1, 1, 1, 1, 2, 2, 2, 2}} {
		m := machines[r]
		if got := device.Elements[float64](m.Output("y"))[:len(want)]; !slices.Equal(got, want) {
			t.Errorf("rank %d receives %v, want %v", r, got, want)
		}
		if got := m.Counts()[1]; got != len(want)/2 {
			t.Errorf("rank %d counts %d rows, want %d", r, got, len(want)/2)
		}
		if got := device.Elements[float64](m.Output("dx")); !slices.Equal(got, []float64{1, 1, 2, 2, 2, 2}) {
			t.Errorf("rank %d: gradient %v", r, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	groups, err := local.New(2, local.Options{})
	check(t, err)
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	defer dev.Close()
	g := groups[0]
	for want, build := range map[string]func(b *graph.Builder){
		"may differ between ranks": func(b *graph.Builder) {
			collective.AllReduce(b, g, b.RowsInput("x", b.Rows("n", 4), device.Float32, 4, 2))
		},
		"send: want host int32 [2, n]": func(b *graph.Builder) {
			collective.AllToAll(b, g, b.Input("x", device.Float32, 4, 2), b.HostInput("r", device.Int32, 2, 1), b.Input("s", device.Int32, 2, 1), 0, 4)
		},
		"receive: want host int32 [2, n]": func(b *graph.Builder) {
			collective.AllToAll(b, g, b.Input("x", device.Float32, 4, 2), b.HostInput("r", device.Int32, 3, 1), b.HostInput("s", device.Int32, 2, 1), 0, 4)
		},
		"no sum of":       func(b *graph.Builder) { collective.AllReduce(b, g, b.Input("x", device.Uint8, 4)) },
		"no sum of uint8": func(b *graph.Builder) { collective.ReduceScatter(b, g, b.Input("x", device.Uint8, 4)) },
		"want rows, have": func(b *graph.Builder) { collective.AllGather(b, g, b.Input("x", device.Float32)) },
		"rows of float32[≤4 2] may differ": func(b *graph.Builder) {
			collective.AllGather(b, g, b.RowsInput("x", b.Rows("n", 4), device.Float32, 4, 2))
		},
		"reduce_scatter: the rows of": func(b *graph.Builder) {
			collective.ReduceScatter(b, g, b.RowsInput("x", b.Rows("n", 4), device.Float32, 4, 2))
		},
		"5 rows of 2 ranks: want parts of 3 rows": func(b *graph.Builder) { collective.AllGatherRows(b, g, b.Input("x", device.Float32, 2), 5) },
		"no rank 2 of 2":  func(b *graph.Builder) { collective.Broadcast(b, g, b.Input("x", device.Float32, 3), 2) },
		"no rank -1 of 2": func(b *graph.Builder) { collective.Broadcast(b, g, b.Input("x", device.Float32, 3), -1) },
		"broadcast: the rows of": func(b *graph.Builder) {
			collective.Broadcast(b, g, b.RowsInput("x", b.Rows("n", 4), device.Float32, 4, 2), 0)
		},
		"want int32 [2, n]": func(b *graph.Builder) { collective.ExchangeCounts(b, g, b.Input("x", device.Float32, 2, 2)) },
	} {
		store := graph.NewStore(dev, graph.StoreOptions{})
		b := graph.New(store)
		build(b)
		if b.Err() == nil || !strings.Contains(b.Err().Error(), want) {
			t.Errorf("error %v, want %q", b.Err(), want)
		}
		store.Close()
	}
}

// TestAllReduceStates: one by itself and two as one, of different shapes.
func TestAllReduceStates(t *testing.T) {
	machines := run(t, 2, func(b *graph.Builder, g collective.Group) {
		init := graph.Constant(float64(1 + g.Rank()))
		x, y, z := b.State("x", device.Float32, init, 3), b.State("y", device.Float32, init, 2, 2), b.State("z", device.Float32, init)
		collective.Join(b, collective.AllReduceStates(b, g, x), collective.AllReduceStates(b, g, y, z))
	})
	for r, m := range machines {
		for name, n := range map[string]int{"x": 3, "y": 4, "z": 1} {
			// 1 + 2, and in the second run 3 + 3.
			if got := device.Elements[float32](m.Program().Graph.Store.Variable(name).Tensor()); len(got) != n || slices.Min(got) != 6 || slices.Max(got) != 6 {
				t.Errorf("rank %d: %s is %v, want 6", r, name, got)
			}
		}
	}
}
