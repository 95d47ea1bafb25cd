package collective_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/devicetest"
	"github.com/lethe-go/lethe/device/instrument"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/ranktest"
	"github.com/lethe-go/lethe/nn"
)

// operation is an op on x, and what it must compute: by rank, of the x of all ranks, or of
// the gradients of all ranks.
type operation struct {
	kind     string
	rows     func(ranks int) int // of x
	build    func(b *graph.Builder, g collective.Group, x graph.Value) *collective.Pending
	result   func(x [][]float64, rank int, round func(float64) float64) []float64
	gradient func(y [][]float64, rank int, round func(float64) float64) []float64
}

const oddRows = 3

var operations = []operation{
	{"all_gather", func(int) int { return oddRows }, collective.AllGather, gathered, scattered},
	{"reduce_scatter", func(ranks int) int { return oddRows * ranks }, collective.ReduceScatter, scattered, gathered},
	{"broadcast", func(int) int { return oddRows },
		func(b *graph.Builder, g collective.Group, x graph.Value) *collective.Pending {
			return collective.Broadcast(b, g, x, g.Size()-1)
		},
		func(x [][]float64, _ int, _ func(float64) float64) []float64 { return x[len(x)-1] },
		func(y [][]float64, rank int, round func(float64) float64) []float64 {
			if rank < len(y)-1 {
				return make([]float64, len(y[0]))
			}
			return summed(y, round)
		}},
}

func gathered(x [][]float64, _ int, _ func(float64) float64) []float64 { return slices.Concat(x...) }

func scattered(x [][]float64, rank int, round func(float64) float64) []float64 {
	n := len(x[0]) / len(x)
	return summed(x, round)[rank*n : (rank+1)*n]
}

// summed adds in the order of ranks, in float64, and rounds once.
func summed(x [][]float64, round func(float64) float64) []float64 {
	sum := make([]float64, len(x[0]))
	for _, terms := range x {
		for i, v := range terms {
			sum[i] += v
		}
	}
	for i := range sum {
		sum[i] = round(sum[i])
	}
	return sum
}

// trial is a graph on several ranks: y of x [rows, width], and the loss Σ weight∘y.
type trial struct {
	ranks, rows, width int
	dtype              device.DType
	build              func(b *graph.Builder, g collective.Group, x graph.Value) graph.Value
	options            checkpoint.Options
	measured           bool // by an instrument
}

func (c trial) start(t *testing.T) []*graph.Machine {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	t.Cleanup(func() { dev.Close() })
	groups, err := local.New(c.ranks, local.Options{Name: "data", Timeout: 10 * time.Second})
	check(t, err)
	machines := make([]*graph.Machine, c.ranks)
	for r, g := range groups {
		var own device.Device = dev
		if c.measured {
			own = instrument.Wrap(dev)
		}
		store := graph.NewStore(own, graph.StoreOptions{})
		t.Cleanup(func() { store.Close() })
		b := graph.New(store)
		x := b.Parameter("x", c.dtype, graph.Constant(0), c.rows, c.width)
		y := c.build(b, g, x)
		weight := b.State("weight", c.dtype, graph.Constant(0), y.Shape()...)
		b.AddLoss("loss", graph.Sum(nn.Mul(y, weight)))
		b.Output("y", y)
		b.Output("dx", b.Backward(x)[0])
		built, err := b.Graph()
		check(t, err)
		plan, err := checkpoint.Resolve(built, c.options)
		check(t, err)
		p, err := graph.Compile(built, graph.CompileOptions{Plan: plan})
		check(t, err)
		machines[r], err = graph.NewMachine(p)
		check(t, err)
		t.Cleanup(func() { machines[r].Close() })
	}
	return machines
}

func rounding(d device.DType) func(float64) float64 {
	if d == device.Float32 {
		return func(v float64) float64 { return float64(float32(v)) }
	}
	return func(v float64) float64 { return v }
}

func variable(m *graph.Machine, name string) device.Tensor {
	return m.Program().Graph.Store.Variable(name).Tensor()
}

// draw gives a variable of every rank numbers of a scale, and returns them by rank.
func draw(machines []*graph.Machine, name string, scale func(r *rand.Rand) float64) [][]float64 {
	all := make([][]float64, len(machines))
	for rank, m := range machines {
		r := rand.New(rand.NewPCG(uint64(rank), uint64(len(name))))
		t := variable(m, name)
		for i := range t.Len() {
			devicetest.SetFloat(t, i, r.NormFloat64()*scale(r))
		}
		all[rank] = devicetest.Floats(t)
	}
	return all
}

func even(*rand.Rand) float64 { return 1 }

// wild numbers have sums that depend on the order of their terms.
func wild(r *rand.Rand) float64 { return math.Pow(10, float64(r.IntN(20)-10)) }

// together calls f for every rank at once.
func together(t *testing.T, machines []*graph.Machine, f func(m *graph.Machine) error) {
	t.Helper()
	errs := make([]error, len(machines))
	var running sync.WaitGroup
	for r, m := range machines {
		running.Go(func() { errs[r] = f(m) })
	}
	running.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func once(m *graph.Machine) error {
	return m.Run(context.Background(), graph.RunOptions{Step: 1})
}

// TestOpsToTheBit holds results and gradients against sums in the order of ranks.
func TestOpsToTheBit(t *testing.T) {
	for _, op := range operations {
		for _, ranks := range []int{1, 2, 4} {
			for _, d := range []device.DType{device.Float32, device.Float64} {
				for _, width := range []int{1, 7, 1023} {
					machines := trial{ranks: ranks, rows: op.rows(ranks), width: width, dtype: d,
						build: func(b *graph.Builder, g collective.Group, x graph.Value) graph.Value { return op.build(b, g, x).Wait() }}.start(t)
					x, weight := draw(machines, "x", wild), draw(machines, "weight", wild)
					together(t, machines, once)
					for r, m := range machines {
						if !slices.Equal(devicetest.Floats(m.Output("y")), op.result(x, r, rounding(d))) {
							t.Errorf("%s of %v[%d %d]: rank %d of %d: another result", op.kind, d, op.rows(ranks), width, r, ranks)
						}
						if !slices.Equal(devicetest.Floats(m.Output("dx")), op.gradient(weight, r, rounding(d))) {
							t.Errorf("%s of %v[%d %d]: rank %d of %d: another gradient", op.kind, d, op.rows(ranks), width, r, ranks)
						}
					}
				}
			}
		}
	}
}

// TestGradientsAreSlopes compares with central differences of the sum of all ranks'
// losses, behind functions that are not linear.
func TestGradientsAreSlopes(t *testing.T) {
	row := func(b *graph.Builder, g collective.Group, x graph.Value) *collective.Pending {
		x = collective.AllGather(b, g, nn.Mul(x, x)).Wait()
		x = collective.ReduceScatter(b, g, nn.Mul(x, x)).Wait()
		return collective.Broadcast(b, g, nn.Mul(x, x), 0)
	}
	for _, op := range append(slices.Clone(operations), operation{kind: "all in a row", rows: func(int) int { return oddRows }, build: row}) {
		for _, ranks := range []int{1, 2, 4} {
			machines := trial{ranks: ranks, rows: op.rows(ranks), width: 1, dtype: device.Float64,
				build: func(b *graph.Builder, g collective.Group, x graph.Value) graph.Value {
					y := op.build(b, g, nn.Mul(x, x)).Wait()
					return nn.Mul(y, y)
				}}.start(t)
			draw(machines, "x", even)
			draw(machines, "weight", even)
			loss := func() float64 {
				together(t, machines, once)
				sum := 0.0
				for _, m := range machines {
					sum += m.Scalar("loss")
				}
				return sum
			}
			loss()
			gradients := make([][]float64, ranks)
			largest := 0.0
			for r, m := range machines {
				gradients[r] = devicetest.Floats(m.Output("dx"))
				for _, v := range gradients[r] {
					largest = max(largest, math.Abs(v))
				}
			}
			const h = 1e-5
			for r, m := range machines {
				x := device.Elements[float64](variable(m, "x"))
				for i, v := range x {
					x[i] = v + h
					up := loss()
					x[i] = v - h
					slope := (up - loss()) / (2 * h)
					x[i] = v
					if got := gradients[r][i]; !(math.Abs(got-slope) <= 1e-6*largest) {
						t.Errorf("%s: rank %d of %d: dx[%d] is %g, the slope is %g", op.kind, r, ranks, i, got, slope)
					}
				}
			}
		}
	}
}

// TestOpsUnderPolicies: none is rerun unless its kind is named, memory is as planned, and
// bits are the same.
func TestOpsUnderPolicies(t *testing.T) {
	for _, op := range operations {
		var want [][]float64
		for _, policy := range []struct {
			name   string
			policy graph.Policy
			rerun  []string
			reruns int
		}{
			{"none", checkpoint.None(), nil, 0},
			{"selective", checkpoint.Selective(), nil, 0},
			{"full", checkpoint.Full(), nil, 0},
			{"full, with another named", checkpoint.Full(), []string{"mul"}, 0},
			{"full, named", checkpoint.Full(), []string{op.kind}, 1},
		} {
			machines := trial{ranks: 2, rows: op.rows(2), width: 5, dtype: device.Float32, measured: true, options: checkpoint.Options{Rerun: policy.rerun},
				build: func(b *graph.Builder, g collective.Group, x graph.Value) (y graph.Value) {
					checkpoint.Region(b, policy.policy, func() {
						y = op.build(b, g, nn.Mul(x, x)).Wait()
						y = nn.Mul(y, y)
					})
					return y
				}}.start(t)
			draw(machines, "x", even)
			draw(machines, "weight", even)
			together(t, machines, func(m *graph.Machine) error {
				seen, err := graph.Measure(context.Background(), m, graph.RunOptions{Step: 1})
				if planned := m.Program().Memory(m.Counts()); err == nil && (seen.Peak != planned.Peak || seen.UnwrittenReads != 0) {
					return fmt.Errorf("%s under %s: measured peak %d, planned %d; %d bytes read before they were written", op.kind, policy.name,
						seen.Peak, planned.Peak, seen.UnwrittenReads)
				}
				return err
			})
			together(t, machines, once) // with dead memory poisoned
			var got [][]float64
			for _, m := range machines {
				n := 0
				for _, node := range m.Program().Reruns() {
					if node.Kind == op.kind {
						n++
					}
				}
				if n != policy.reruns {
					t.Errorf("%s under %s is rerun %d times, want %d", op.kind, policy.name, n, policy.reruns)
				}
				got = append(got, devicetest.Floats(m.Output("y")), devicetest.Floats(m.Output("dx")))
			}
			if want == nil {
				want = got
			}
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s: other bits under %s", op.kind, policy.name)
			}
		}
	}
}

// TestOpsOverlap: what is built between an op and its Wait runs between them, forward and
// backward, and all collectives of a group are on one lane.
func TestOpsOverlap(t *testing.T) {
	for _, op := range operations {
		m := trial{ranks: 1, rows: op.rows(1), width: 5, dtype: device.Float32,
			build: func(b *graph.Builder, g collective.Group, x graph.Value) graph.Value {
				travelling := op.build(b, g, x)
				beside := graph.Sum(nn.Mul(x, x))
				return nn.Scale(travelling.Wait(), beside)
			}}.start(t)[0]
		var travelling *graph.Step
		beside := map[bool][]string{}
		for _, s := range m.Program().Steps {
			switch {
			case s.Kind == graph.Wait:
				if s.Awaits() != travelling {
					t.Errorf("%s: a wait for what does not travel", op.kind)
				}
				travelling = nil
			case s.Lane == "collective data":
				travelling = s
			case s.Lane != graph.Compute:
				t.Errorf("%s: lane %q", op.kind, s.Lane)
			case travelling != nil:
				beside[s.Backward()] = append(beside[s.Backward()], s.Node.Kind)
			}
		}
		if !slices.Contains(beside[false], "mul") || !slices.Contains(beside[true], "mul") {
			t.Errorf("%s: beside it run %v forward and %v backward, want mul", op.kind, beside[false], beside[true])
		}
	}
}

func TestWarmOpsAllocateNothing(t *testing.T) {
	for _, op := range operations {
		machines := trial{ranks: 2, rows: op.rows(2), width: 5, dtype: device.Float32,
			build: func(b *graph.Builder, g collective.Group, x graph.Value) graph.Value { return op.build(b, g, x).Wait() }}.start(t)
		var runs []func() error
		for _, m := range machines {
			runs = append(runs, func() error { return once(m) })
		}
		if n := ranktest.AllocationsPerRun(t, runs...); n != 0 {
			t.Errorf("%s: a warm run allocates %v times", op.kind, n)
		}
	}
}
