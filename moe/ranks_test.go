package moe_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
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
	"github.com/lethe-go/lethe/moe"
)

// trial is a layer over some ranks, with a loss Σ y∘cotangent. Inputs and parameters
// do not depend on the number of ranks: each has its part of the same whole.
type trial struct {
	layer  moe.Layer
	more   int // layers of the same kind behind it, each in a region of its own
	tokens int // of all ranks together
	width  int
	dtype  device.DType
	// bias of the router by expert, for layers that have one.
	bias []float64
	// policy of a region around the layer; nil saves everything.
	policy  graph.Policy
	options checkpoint.Options
	// measured puts an instrument between each rank and the device.
	measured bool
	// wrap changes a rank's end of the group.
	wrap func(collective.Group) collective.Group
}

// member is one rank of a trial.
type member struct {
	group   *counted
	store   *graph.Store
	program *graph.Program
	machine *graph.Machine
	names   []string // of outputs
}

// counted counts the exchanges that a rank takes part in.
type counted struct {
	collective.Group
	exchanges atomic.Int64
}

func (c *counted) AllToAll(ctx context.Context, out, in, receive, send device.Tensor) error {
	c.exchanges.Add(1)
	return c.Group.AllToAll(ctx, out, in, receive, send)
}

// layout gives each rank its experts and its tokens.
type layout struct{ moe.ExpertLayout }

func (l layout) Place(name string, global []int) (shape, offset []int, padding int) {
	if name != "x" && name != "cotangent" {
		return l.ExpertLayout.Place(name, global)
	}
	shape, offset = slices.Clone(global), make([]int, len(global))
	shape[0] /= l.Ranks
	offset[0] = shape[0] * l.Rank
	return shape, offset, 0
}

// start compiles the trial on a number of ranks. Without a group for a single rank the
// layer is local.
func (c trial) start(t *testing.T, ranks int) []*member {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: 2})
	check(t, err)
	t.Cleanup(func() { dev.Close() })
	groups, err := local.New(ranks, local.Options{Name: "expert", Timeout: 30 * time.Second})
	check(t, err)
	members := make([]*member, ranks)
	for r := range members {
		m := &member{group: &counted{Group: groups[r]}}
		var own device.Device = dev
		if c.measured {
			own = instrument.Wrap(dev)
		}
		m.store = graph.NewStore(own, graph.StoreOptions{Seed: 11, Layout: layout{moe.ExpertLayout{Rank: r, Ranks: ranks}}})
		t.Cleanup(func() { m.store.Close() })
		c.compile(t, m)
		members[r] = m
	}
	return members
}

func (c trial) compile(t *testing.T, m *member) {
	t.Helper()
	b := graph.New(m.store)
	x := b.Parameter("x", c.dtype, graph.Normal{Std: 1}, c.tokens, c.width)
	cotangent := b.Parameter("cotangent", c.dtype, graph.Normal{Std: 1}, c.tokens, c.width)
	l := c.layer
	if m.group.Size() > 1 {
		g := collective.Group(m.group)
		if c.wrap != nil {
			g = c.wrap(g)
		}
		l.Dispatcher = moe.AllToAll{Group: g}
	}
	policy := c.policy
	if policy == nil {
		policy = checkpoint.None()
	}
	var y graph.Value
	checkpoint.Region(b, policy, func() { y = l.Build(b.Scope("layer"), x) })
	for i := range c.more {
		checkpoint.Region(b, policy, func() { y = l.Build(b.Scope("more", i), graph.Add(y, x)) })
	}
	m.output(b, "y", y)
	b.AddLoss("loss", b.Apply(weightedSum{}, y, cotangent))
	wrt := slices.DeleteFunc(b.Parameters(), func(v graph.Value) bool { return v.Name() == "cotangent" })
	for i, g := range b.Backward(wrt...) {
		m.output(b, wrt[i].Name(), g)
	}
	g, err := b.Graph()
	check(t, err)
	plan, err := checkpoint.Resolve(g, c.options)
	check(t, err)
	m.program, err = graph.Compile(g, graph.CompileOptions{Plan: plan})
	check(t, err)
	m.machine, err = graph.NewMachine(m.program)
	check(t, err)
	t.Cleanup(func() { m.machine.Close() })
	if v := m.store.Variable("layer.router.expert_bias"); v != nil {
		for e, bias := range c.bias {
			devicetest.SetFloat(v.Tensor(), e, bias)
		}
	}
}

func (m *member) output(b *graph.Builder, name string, v graph.Value) {
	b.Output(name, v)
	m.names = append(m.names, name)
}

// together calls f for every rank at once. As the trainer does, a rank that fails ends
// the group.
func together(members []*member, f func(m *member) error) []error {
	errs := make([]error, len(members))
	var running sync.WaitGroup
	for r, m := range members {
		running.Go(func() {
			if errs[r] = f(m); errs[r] != nil {
				m.group.Abort(errs[r])
			}
		})
	}
	running.Wait()
	return errs
}

func (m *member) run() error { return m.machine.Run(context.Background(), graph.RunOptions{Step: 1}) }

// runAll runs every rank once.
func runAll(t *testing.T, members []*member) {
	t.Helper()
	for r, err := range together(members, (*member).run) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// results of a trial by name of the output: y, and gradients under the names of what
// they belong to. What ranks share out is joined and what they all have is summed.
func results(members []*member) map[string][]float64 {
	all := map[string][]float64{}
	for _, m := range members {
		for _, name := range m.names {
			values := devicetest.Floats(m.machine.Output(name))
			if sharedOut(name) || all[name] == nil {
				all[name] = append(all[name], values...)
				continue
			}
			for i, v := range values {
				all[name][i] += v
			}
		}
	}
	return all
}

// sharedOut reports whether each rank has another part of an output.
func sharedOut(name string) bool { return name == "x" || name == "y" || moe.IsExpert(name) }

// compare demands the same bits, or with a tolerance relative to the largest value
// that much for the sums over ranks.
func compare(t *testing.T, got, want map[string][]float64, tolerance float64) {
	t.Helper()
	for name, w := range want {
		g := got[name]
		if len(g) != len(w) {
			t.Errorf("%s: %d values, want %d", name, len(g), len(w))
			continue
		}
		largest, allowed := 0.0, 0.0
		for _, v := range w {
			largest = max(largest, math.Abs(v))
		}
		if !sharedOut(name) {
			allowed = tolerance * largest
		}
		for i := range w {
			if !(math.Abs(g[i]-w[i]) <= allowed) {
				t.Errorf("%s: element %d is %g, want %g (largest %g)", name, i, g[i], w[i], largest)
				break
			}
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// weightedSum is Σ y∘w, which only a loss is made of.
type weightedSum struct{}

func (weightedSum) Kind() string                            { return "weighted_sum" }
func (weightedSum) Effects() graph.Effects                  { return 0 }
func (weightedSum) Workspace(in []device.Spec, _ int) int64 { return in[0].Bytes() }
func (weightedSum) Cost(in []device.Spec) graph.Cost        { return graph.Traffic(0, in, nil) }
func (weightedSum) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(in[0].DType)}, nil
}

func (weightedSum) Run(x *graph.Exec, out, in []device.Tensor) error {
	products := x.Scratch(0, in[0].DType(), in[0].Len())
	x.Binary(device.Mul, products, in[0].Reshape(in[0].Len()), in[1].Reshape(in[0].Len()))
	x.Sum(out[0].Reshape(1), products)
	return nil
}

func (weightedSum) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	if !graph.IsOne(grad[0]) {
		return []graph.Value{b.Fail("weighted_sum: is not the loss"), graph.None}
	}
	return []graph.Value{in[1], graph.None}
}
