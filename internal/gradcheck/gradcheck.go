// Package gradcheck tests ops through a graph.Machine: their gradients against
// central differences in float64, float32 against float64, and that a warm run
// allocates nothing.
//
// The loss that is differentiated is Σ w∘y over all outputs y of a [Case], with
// random w: one backward pass then checks all entries of the Jacobian at once.
package gradcheck

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

// Case is a function whose gradients are checked with respect to its inputs and
// to every parameter that it declares.
type Case struct {
	// Inputs are the shapes of the float inputs.
	Inputs [][]int
	// Build returns the outputs; d is the dtype of the inputs. It may declare
	// parameters, and the int32 inputs that Feed gives values to.
	Build func(b *graph.Builder, d device.DType, in []graph.Value) []graph.Value
	Feed  map[string][]int32
	// Tolerance of a gradient, relative to the parameter's largest; 0 means 1e-6.
	Tolerance float64
	// Tolerance32 of outputs and gradients in float32; 0 means 1e-5.
	Tolerance32 float64
}

// Run does all checks.
func Run(t *testing.T, c Case) {
	t.Helper()
	wide := newModel(t, c, device.Float64)
	wide.checkGradients(t)
	wide.checkAllocations(t)
	wide.checkRerun(t)
	narrow := newModel(t, c, device.Float32)
	narrow.checkAllocations(t)
	checkPrecision(t, narrow, wide)
}

// model is a Case compiled in one dtype.
type model struct {
	c       Case
	store   *graph.Store
	graph   *graph.Graph
	machine *graph.Machine
	names   []string // of parameters
	outputs []string // names of the program's outputs to compare
}

func newModel(t *testing.T, c Case, d device.DType) *model {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: 2})
	check(t, err)
	t.Cleanup(func() { dev.Close() })
	m := &model{c: c, store: graph.NewStore(dev, graph.StoreOptions{Seed: 7})}
	t.Cleanup(func() { m.store.Close() })

	b := graph.New(m.store)
	in := make([]graph.Value, len(c.Inputs))
	for i, shape := range c.Inputs {
		in[i] = b.Parameter(fmt.Sprintf("input.%d", i), d, graph.Normal{Std: 1}, shape...)
	}
	b.AddLoss("loss", m.weightedSum(b, d, c.Build(b.Scope("case"), d, in)))
	parameters := b.Parameters()
	for i, g := range b.Backward(parameters...) {
		m.names = append(m.names, parameters[i].Name())
		m.output(b, "gradient of "+parameters[i].Name(), g)
	}
	m.compile(t, b)
	m.jitter()
	return m
}

// weightedSum declares the outputs and returns Σ w∘y.
func (m *model) weightedSum(b *graph.Builder, d device.DType, outputs []graph.Value) graph.Value {
	var total graph.Value
	for i, y := range outputs {
		m.output(b, fmt.Sprintf("output %d", i), y)
		w := b.State(fmt.Sprintf("cotangent.%d", i), d, graph.Normal{Std: 1}, y.Shape()...)
		sum := b.Apply(weightedSum{}, y, w)
		if i == 0 {
			total = sum
		} else {
			total = graph.Add(total, sum)
		}
	}
	return total
}

func (m *model) output(b *graph.Builder, name string, v graph.Value) {
	b.Output(name, v)
	m.outputs = append(m.outputs, name)
}

func (m *model) compile(t *testing.T, b *graph.Builder) {
	t.Helper()
	var err error
	m.graph, err = b.Graph()
	check(t, err)
	m.machine = m.newMachine(t, nil)
}

func (m *model) newMachine(t *testing.T, plan *graph.Plan) *graph.Machine {
	t.Helper()
	p, err := graph.Compile(m.graph, graph.CompileOptions{Plan: plan})
	check(t, err)
	machine, err := graph.NewMachine(p)
	check(t, err)
	t.Cleanup(func() { machine.Close() })
	for name, values := range m.c.Feed {
		check(t, graph.Feed(machine, name, values))
	}
	return machine
}

// jitter moves parameters away from special values such as the ones of a norm.
func (m *model) jitter() {
	for _, name := range m.names {
		x := m.parameter(name)
		for i := range x.len() {
			x.set(i, x.at(i)+0.25*math.Sin(float64(3*i+len(name))))
		}
	}
}

func (m *model) parameter(name string) elements {
	return elements{m.store.Variable(name).Tensor()}
}

func (m *model) gradient(name string) elements {
	return elements{m.machine.Output("gradient of " + name)}
}

// options of every run: any that are not zero.
var options = graph.RunOptions{Step: 3, Microbatch: 1}

func (m *model) run(t *testing.T) float64 {
	check(t, m.machine.Run(context.Background(), options))
	return m.machine.Scalar("loss")
}

// checkGradients compares with (L(x+h) − L(x−h)) / 2h.
func (m *model) checkGradients(t *testing.T) {
	t.Helper()
	m.run(t)
	analytic := map[string][]float64{}
	for _, name := range m.names {
		analytic[name] = m.gradient(name).copy()
	}
	tolerance := cmp.Or(m.c.Tolerance, 1e-6)
	for _, name := range m.names {
		numeric, largest := m.numeric(t, name)
		for i, want := range numeric {
			if got := analytic[name][i]; !(math.Abs(got-want) <= tolerance*largest) {
				t.Errorf("gradient of %s, element %d: %g, central differences give %g (largest %g)", name, i, got, want, largest)
				break
			}
		}
	}
}

// numeric returns all gradients of one parameter by central differences, and the
// largest size among them, at least 1e-2.
func (m *model) numeric(t *testing.T, name string) (g []float64, largest float64) {
	const h = 1e-5
	x := m.parameter(name)
	g, largest = make([]float64, x.len()), 1e-2
	for i := range g {
		old := x.at(i)
		x.set(i, old+h)
		above := m.run(t)
		x.set(i, old-h)
		below := m.run(t)
		x.set(i, old)
		g[i] = (above - below) / (2 * h)
		largest = max(largest, math.Abs(g[i]))
	}
	return g, largest
}

func (m *model) checkAllocations(t *testing.T) {
	t.Helper()
	m.run(t)
	ctx := context.Background()
	if n := testing.AllocsPerRun(5, func() { m.machine.Run(ctx, options) }); n != 0 {
		t.Errorf("a warm run allocates %v times", n)
	}
}

// checkRerun demands the same bits from a plan that saves nothing.
func (m *model) checkRerun(t *testing.T) {
	t.Helper()
	plan := graph.SaveAll(m.graph)
	for i, n := range m.graph.Nodes {
		if n.IsOp() && n.Phase == graph.Forward && !n.Effects.Has(graph.SideEffect) && !n.Effects.Has(graph.Discrete) {
			plan.Entries[i].Choice = graph.Rerun
		}
	}
	rerun := m.newMachine(t, plan)
	m.run(t)
	check(t, rerun.Run(context.Background(), options))
	for _, name := range m.outputs {
		got, want := elements{rerun.Output(name)}.copy(), elements{m.machine.Output(name)}.copy()
		if !slices.Equal(got, want) {
			t.Errorf("%s differs when everything is rerun: %v, not %v", name, got, want)
		}
	}
}

// checkPrecision compares float32 with float64 at the same parameters.
func checkPrecision(t *testing.T, narrow, wide *model) {
	t.Helper()
	for _, v := range narrow.store.Variables() {
		if v.Spec.DType != device.Float32 || v.Kind == graph.Fixed {
			continue
		}
		from, to := elements{v.Tensor()}, elements{wide.store.Variable(v.Name).Tensor()}
		for i := range from.len() {
			to.set(i, from.at(i))
		}
	}
	narrow.run(t)
	wide.run(t)
	tolerance := cmp.Or(narrow.c.Tolerance32, 1e-5)
	for _, name := range narrow.outputs {
		got, want := elements{narrow.machine.Output(name)}.copy(), elements{wide.machine.Output(name)}.copy()
		largest := 1e-2
		for _, w := range want {
			largest = max(largest, math.Abs(w))
		}
		for i, w := range want {
			if !(math.Abs(got[i]-w) <= tolerance*largest) {
				t.Errorf("%s, element %d: float32 gives %g, float64 %g (largest %g)", name, i, got[i], w, largest)
				break
			}
		}
	}
}

// elements gives a float tensor in host memory as float64.
type elements struct{ t device.Tensor }

func (e elements) len() int { return e.t.Len() }

func (e elements) at(i int) float64 {
	if e.t.DType() == device.Float64 {
		return device.Elements[float64](e.t)[i]
	}
	return float64(device.Elements[float32](e.t)[i])
}

func (e elements) set(i int, v float64) {
	if e.t.DType() == device.Float64 {
		device.Elements[float64](e.t)[i] = v
	} else {
		device.Elements[float32](e.t)[i] = float32(v)
	}
}

func (e elements) copy() []float64 {
	out := make([]float64, e.len())
	for i := range out {
		out[i] = e.at(i)
	}
	return out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// weightedSum is Σ y∘w, which only a loss is made of.
type weightedSum struct{}

func (weightedSum) Kind() string           { return "weighted_sum" }
func (weightedSum) Effects() graph.Effects { return 0 }

func (weightedSum) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(in[0].DType)}, nil
}

func (weightedSum) Workspace(in []device.Spec, _ int) int64 { return in[0].Bytes() }

func (weightedSum) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(2*float64(in[0].Len()), in, nil)
}

func (weightedSum) Run(x *graph.Exec, out, in []device.Tensor) error {
	n := in[0].Len()
	products := x.Scratch(0, in[0].DType(), n)
	x.Binary(device.Mul, products, in[0].Reshape(n), in[1].Reshape(n))
	x.Sum(out[0].Reshape(1), products)
	return nil
}

func (weightedSum) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	if !graph.IsOne(grad[0]) {
		return []graph.Value{b.Fail("weighted_sum: is not the loss"), graph.None}
	}
	return []graph.Value{in[1], graph.None}
}
