package graph

import (
	"context"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	G "gorgonia.org/gorgonia"
)

func TestFirstErrorIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		build func(b *Builder)
		want  []string
	}{
		"shapes": {func(b *Builder) {
			b = b.Scope("layers", 3).Scope("moe")
			x := b.Input("x", device.Float32, 2, 3)
			y := b.Apply(add{}, x, b.Input("y", device.Float32, 3, 2))
			b.Output("z", Add(y, y)) // poisoned
		}, []string{"graph: layers.3.moe: add: shapes differ: float32[2 3] × float32[3 2]", "builder_test.go:"}},
		"dtypes": {func(b *Builder) {
			Add(b.Input("x", device.Float32, 2), b.Input("y", device.Float64, 2))
		}, []string{"dtypes differ: float32[2] × float64[2]"}},
		"absent": {func(b *Builder) { b.Output("y", None) }, []string{`output y: input 0 is absent (graph.None)`}},
		"foreign": {func(b *Builder) {
			other := New(b.Store())
			b.Output("y", other.Input("x", device.Float32))
		}, []string{"belongs to another graph: x"}},
		"loss":  {func(b *Builder) { b.AddLoss("l", b.Input("x", device.Float32, 2)) }, []string{`loss "l": want a float scalar, have float32[2]`}},
		"twice": {func(b *Builder) { b.Input("x", device.Float32); b.Input("x", device.Float32) }, []string{`input "x" is declared twice`}},
		"parameter": {func(b *Builder) {
			b.Parameter("w", device.Float32, Zeros, 2)
			b.Parameter("w", device.Float32, Zeros, 3)
		}, []string{`"w" is a parameter float32[2] in the store: wanted a parameter float32[3]`}},
		"negative": {func(b *Builder) { b.Input("x", device.Float32, -1) }, []string{"negative extent in shape [-1]"}},
		"rank":     {func(b *Builder) { b.Input("x", device.Float32, 1, 1, 1, 1, 1, 1) }, []string{"rank 6 is over the limit"}},
		"overflow": {func(b *Builder) { b.Input("x", device.Float32, 1<<40, 1<<40) }, []string{"overflows"}},
		"reshape":  {func(b *Builder) { Reshape(b.Input("x", device.Float32, 6), 4) }, []string{"float32[6] has 6 elements, [4] has 4"}},
		"no loss":  {func(b *Builder) { b.Backward() }, []string{"there is no loss"}},
		"backward twice": {func(b *Builder) {
			b.AddLoss("l", b.Input("x", device.Float32))
			b.Backward()
			b.Backward()
		}, []string{"was called before"}},
		"nothing": {func(b *Builder) { b.Input("x", device.Float32) }, []string{"nothing to compute"}},
		"update":  {func(b *Builder) { x := b.Input("x", device.Float32); b.Update(x, x) }, []string{"x is not a parameter or state"}},
		"read after write": {func(b *Builder) {
			s := b.State("s", device.Float32, Zeros)
			one := b.Full(1, device.Float32)
			b.Output("y", Add(s, s)) // reads s, after the assignment has moved behind one
			b.Assign(s, one)
		}, []string{"has overwritten before"}},
		"wrap": {func(b *Builder) { b.Wrap(input(G.NewGraph(), "x", 1, 1)) }, []string{"not of this Builder's ExprGraph"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(newStore(t, 1))
			c.build(b)
			g, err := b.Graph()
			if err == nil {
				_, err = Compile(g, CompileOptions{})
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q: want it to contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q has several lines", err)
			}
		})
	}
}

func TestPoisonedValuesAreHarmless(t *testing.T) {
	b := New(newStore(t, 1))
	v := b.Fail("refused: %d", 7)
	if v.IsNone() || v.Node() != nil || v.Name() != "poisoned" || v.Err() == nil || v.Dim(0) != 0 {
		t.Errorf("poisoned value: %v %v %v", v.IsNone(), v.Name(), v.Err())
	}
	w := Sum(Reshape(Add(v, v), 3))
	b.AddLoss("l", w)
	b.Update(w, w)
	for _, g := range b.Backward(w) {
		if g.Err() == nil {
			t.Error("a gradient of a poisoned value has no error")
		}
	}
	if _, err := b.Graph(); err == nil || !strings.Contains(err.Error(), "refused: 7") {
		t.Errorf("error %v, want the first one", err)
	}
	if Add(None, None).Err() == nil {
		t.Error("the sum of nothing has no error")
	}
}

func TestParameterWithoutLossGetsZerosAndAWarning(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 2)
	lost := b.Scope("expert").Parameter("w", device.Float32, Constant(3), 2)
	b.AddLoss("l", Sum(x))
	b.Output("dw", b.Backward(lost)[0])
	if w := b.Warnings(); len(w) != 1 || w[0] != "expert.w reaches no loss: its gradient is zero" {
		t.Errorf("warnings %q", w)
	}
	m := newMachine(t, b)
	device.Elements[float32](m.Output("dw"))[0] = 5
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := device.Elements[float32](m.Output("dw")); got[0] != 0 || got[1] != 0 {
		t.Errorf("gradient %v, want zeros", got)
	}
}

func TestSeveralLossesAreSummed(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float64, 2)
	b.AddLoss("a", Sum(x))
	b.AddLoss("b", Sum(Add(x, x)))
	b.Output("dx", b.Backward(x)[0])
	m := newMachine(t, b)
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := device.Elements[float64](m.Output("dx")); got[0] != 3 || got[1] != 3 {
		t.Errorf("dx = %v, want 3 everywhere", got)
	}
}

func TestNamesAndRegions(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Scope("embed").Input("x", device.Float32, 2)
	layer := b.Scope("layers", 0)
	var y Value
	layer.Region(nil, func() {
		y = Add(x, layer.Scope("attention").Apply(add{}, x, x))
		layer.Scope("moe").Region(nil, func() { y = Add(y, y) })
	})
	b.AddLoss("l", Sum(y))
	b.Output("dx", b.Backward(x)[0])
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"layers.0.attention.add:0": 0, "layers.0.add:0": 0, "layers.0.moe.add:0": 1, "layers.0.backward.add:0": 0}
	for _, n := range g.Nodes {
		id, ok := want[n.Name]
		if !ok {
			continue
		}
		delete(want, n.Name)
		if n.Region == nil || n.Region.ID != id {
			t.Errorf("%s is in region %v, want %d", n.Name, n.Region, id)
		}
		if !strings.HasPrefix(n.Source, "builder_test.go:") {
			t.Errorf("%s: source %s", n.Name, n.Source)
		}
	}
	if len(want) > 0 {
		t.Errorf("no nodes named %v", want)
	}
	if !g.Regions[0].Contains(g.Regions[1]) || g.Regions[1].Contains(g.Regions[0]) {
		t.Error("regions are not nested")
	}
}

// Applications of one op to equal inputs are equal to Gorgonia but for their
// unique ids; none may be merged.
func TestEqualOpsAreNeverMerged(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 1)
	seen := map[int64]bool{}
	for range 2000 {
		seen[Add(x, x).Node().ID()] = true
	}
	if len(seen) != 2000 {
		t.Errorf("%d nodes for 2000 applications", len(seen))
	}
}
