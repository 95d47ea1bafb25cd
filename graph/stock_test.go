package graph

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/instrument"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// stockModel builds the same stock nodes in any graph: the loss, and the inputs
// that are weights.
type stockModel func(g *G.ExprGraph, region func(func())) (loss *G.Node, weights []*G.Node)

// mlp is a stack of two-layer perceptrons with residuals and RMS normalization.
func mlp(blocks, rows, width, hidden int) stockModel {
	return func(g *G.ExprGraph, region func(func())) (*G.Node, []*G.Node) {
		x := input(g, "x", rows, width)
		var weights []*G.Node
		for i := range blocks {
			w1, w2 := input(g, fmt.Sprintf("w1.%d", i), width, hidden), input(g, fmt.Sprintf("w2.%d", i), hidden, width)
			weights = append(weights, w1, w2)
			region(func() {
				h := G.Must(G.Mul(normalize(x, rows), w1))
				h = G.Must(G.HadamardProd(h, G.Must(G.Sigmoid(h))))
				x = G.Must(G.Add(x, G.Must(G.Mul(h, w2))))
			})
		}
		return G.Must(G.Mean(G.Must(G.Square(x)))), weights
	}
}

// transformer is a stack of blocks of one-head attention and a perceptron.
func transformer(blocks, rows, width int) stockModel {
	return func(g *G.ExprGraph, region func(func())) (*G.Node, []*G.Node) {
		x := input(g, "x", rows, width)
		var weights []*G.Node
		for i := range blocks {
			var w []*G.Node
			for _, name := range []string{"q", "k", "v", "o", "up", "down"} {
				w = append(w, input(g, fmt.Sprintf("%s.%d", name, i), width, width))
			}
			weights = append(weights, w...)
			region(func() {
				n := normalize(x, rows)
				q, k, v := G.Must(G.Mul(n, w[0])), G.Must(G.Mul(n, w[1])), G.Must(G.Mul(n, w[2]))
				scores := G.Must(G.Exp(G.Must(G.Tanh(G.Must(G.Mul(q, G.Must(G.Transpose(k))))))))
				total := G.Must(G.Reshape(G.Must(G.Sum(scores, 1)), tensor.Shape{rows, 1}))
				a := G.Must(G.BroadcastHadamardDiv(scores, total, nil, []byte{1}))
				x = G.Must(G.Add(x, G.Must(G.Mul(G.Must(G.Mul(a, v)), w[3]))))
				h := G.Must(G.Tanh(G.Must(G.Mul(normalize(x, rows), w[4]))))
				x = G.Must(G.Add(x, G.Must(G.Mul(h, w[5]))))
			})
		}
		return G.Must(G.Mean(G.Must(G.Square(x)))), weights
	}
}

// normalize divides each row by its root mean square.
func normalize(x *G.Node, rows int) *G.Node {
	mean := G.Must(G.Reshape(G.Must(G.Mean(G.Must(G.Square(x)), 1)), tensor.Shape{rows, 1}))
	return G.Must(G.BroadcastHadamardDiv(x, G.Must(G.Sqrt(mean)), nil, []byte{1}))
}

func input(g *G.ExprGraph, name string, shape ...int) *G.Node {
	return G.NewMatrix(g, G.Float32, G.WithShape(shape...), G.WithName(name))
}

// values are deterministic small numbers for a named input.
func values(name string, n int) []float32 {
	seed := uint64(0)
	for _, c := range name {
		seed = seed*31 + uint64(c)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64()) * 0.2
	}
	return v
}

// tape runs the model on Gorgonia's TapeMachine and returns the loss, the
// gradients by name, and the bytes of all values but inputs that it holds.
func tape(t *testing.T, model stockModel) (loss float32, grads map[string][]float32, live int64) {
	g := G.NewGraph()
	cost, weights := model(g, func(f func()) { f() })
	gradNodes, err := G.Grad(cost, weights...)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Inputs() {
		G.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(values(n.Name(), n.Shape().TotalSize()))))
	}
	vm := G.NewTapeMachine(g, G.BindDualValues(weights...))
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	grads = map[string][]float32{}
	for i, w := range weights {
		grads[w.Name()] = append([]float32(nil), gradNodes[i].Value().Data().([]float32)...)
	}
	seen := map[uintptr]bool{}
	for _, n := range g.AllNodes() {
		if v := n.Value(); v != nil && n.Op() != nil && !seen[v.Uintptr()] {
			seen[v.Uintptr()] = true
			live += int64(v.MemSize())
		}
	}
	return cost.Value().Data().(float32), grads, live
}

// machine runs the model on a Machine, each block a region under the policy, and
// returns the loss, the gradients and the measured peak.
func machine(t *testing.T, model stockModel, recompute bool) (loss float32, grads map[string][]float32, seen instrument.Measurement, planned Memory) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	store := NewStore(instrument.Wrap(d), StoreOptions{})
	t.Cleanup(func() { store.Close(); d.Close() })
	b := New(store)
	cost, weights := model(b.ExprGraph(), func(f func()) { b.Region(nil, f) })
	b.AddLoss("loss", b.Wrap(cost))
	wrt := make([]Value, len(weights))
	for i, w := range weights {
		wrt[i] = b.Wrap(w)
	}
	// Gradients go to scratch variables, as in training, and are no part of the arena.
	for i, g := range b.Backward(wrt...) {
		b.Assign(b.Scratch("gradient."+weights[i].Name(), device.Float32, weights[i].Shape()...), g)
	}
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	plan := SaveAll(g)
	if recompute {
		recomputeInside(g, plan)
	}
	m := machineUnder(t, g, plan)
	for _, n := range g.Inputs {
		if err := Feed(m, n.Name, values(n.Name, n.Out[0].Len())); err != nil {
			t.Fatal(err)
		}
	}
	if seen, err = Measure(context.Background(), m, RunOptions{Step: 1}); err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background(), RunOptions{Step: 1}); err != nil { // poisoned
		t.Fatal(err)
	}
	grads = map[string][]float32{}
	for _, w := range weights {
		v := store.Variable("gradient." + w.Name())
		grads[w.Name()] = append([]float32(nil), device.Elements[float32](v.Tensor())...)
	}
	return float32(m.Scalar("loss")), grads, seen, m.Program().Memory(nil)
}

// recomputeInside reruns all of a region but what other regions read.
func recomputeInside(g *Graph, plan *Plan) {
	for _, n := range g.Nodes {
		if n.Phase != Forward || n.Region == nil || !n.IsOp() {
			continue
		}
		inside := true
		for _, u := range n.Users() {
			inside = inside && (u.Phase != Forward || u.Region == n.Region)
		}
		if inside {
			plan.Entries[n.ID].Choice = Rerun
		}
	}
}

func TestMachineEqualsTapeMachine(t *testing.T) {
	for name, model := range map[string]stockModel{
		"mlp":         mlp(12, 32, 24, 64),
		"transformer": transformer(12, 24, 16),
	} {
		t.Run(name, func(t *testing.T) {
			wantLoss, wantGrads, tapeBytes := tape(t, model)
			for _, recompute := range []bool{false, true} {
				loss, grads, seen, planned := machine(t, model, recompute)
				if loss != wantLoss {
					t.Errorf("recompute %v: loss %v, TapeMachine has %v", recompute, loss, wantLoss)
				}
				for w, want := range wantGrads {
					for i := range want {
						if math.Abs(float64(grads[w][i]-want[i])) > 1e-6*math.Abs(float64(want[i]))+1e-9 {
							t.Fatalf("recompute %v: gradient of %s at %d: %v, TapeMachine has %v", recompute, w, i, grads[w][i], want[i])
						}
					}
				}
				if seen.Peak != planned.Peak || seen.UnwrittenReads != 0 {
					t.Errorf("recompute %v: measured peak %d, %d unwritten reads; planned %d", recompute, seen.Peak, seen.UnwrittenReads, planned.Peak)
				}
				t.Logf("recompute %v: peak %d bytes, TapeMachine holds %d: ratio %.3f", recompute, planned.Peak, tapeBytes, float64(planned.Peak)/float64(tapeBytes))
				if recompute && planned.Peak*4 > tapeBytes {
					t.Errorf("peak %d bytes is over a quarter of TapeMachine's %d", planned.Peak, tapeBytes)
				}
			}
		})
	}
}

func TestStockRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		build func(g *G.ExprGraph) *G.Node
		want  string
	}{
		"softmax": {func(g *G.ExprGraph) *G.Node { return G.Must(G.SoftMax(input(g, "x", 2, 3))) }, "use nn.Softmax"},
		"dropout": {func(g *G.ExprGraph) *G.Node { return G.Must(G.Dropout(input(g, "x", 2, 3), 0.5)) }, "use nn.Dropout"},
		"unnamed": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Tanh(G.NewMatrix(g, G.Float32, G.WithShape(2, 2))))
		}, "name it"},
		"constant": {func(g *G.ExprGraph) *G.Node {
			c := G.NewConstant(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(make([]float32, 6))))
			return G.Must(G.Add(input(g, "x", 2, 3), c))
		}, "constant tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(newStore(t, 1))
			b.Output("y", b.Wrap(c.build(b.ExprGraph())))
			_, err := b.Graph()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v: want it to say %q", err, c.want)
			}
		})
	}
}

func TestInverseSqrtGradientIsCorrected(t *testing.T) {
	b := New(newStore(t, 1))
	x := input(b.ExprGraph(), "x", 1, 2)
	b.AddLoss("loss", b.Wrap(G.Must(G.Sum(G.Must(G.InverseSqrt(x))))))
	b.Output("dx", b.Backward(b.Wrap(x))[0])
	m := newMachine(t, b)
	Feed(m, "x", []float32{4, 0.25})
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	// d(x^-1/2)/dx = -x^(-3/2)/2
	got := device.Elements[float32](m.Output("dx"))
	if math.Abs(float64(got[0])+1.0/16) > 1e-6 || math.Abs(float64(got[1])+4) > 1e-5 {
		t.Errorf("gradient %v, want -1/16 and -4", got)
	}
}

func TestAdoptedGraphRuns(t *testing.T) {
	g := G.NewGraph()
	x := input(g, "x", 1, 2)
	y := G.Must(G.Add(x, x))
	G.Let(x, tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float32{1, 2})))
	b := Adopt(newStore(t, 1), g)
	b.Output("y", b.Wrap(y))
	m := newMachine(t, b)
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := device.Elements[float32](m.Output("y")); got[0] != 2 || got[1] != 4 {
		t.Errorf("y = %v, want 2 and 4", got)
	}
}
