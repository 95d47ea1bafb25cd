package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"pgregory.net/rapid"
)

// fickle is an op that remembers, which no op may: it copies, and spoils an element in
// every second run.
type fickle struct {
	Pure
	runs  *int
	spoil int // element of the first dimension
}

func (fickle) Kind() string                                    { return "fickle" }
func (fickle) Cost(in []device.Spec) Cost                      { return Traffic(0, in, in) }
func (fickle) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], nil }
func (f fickle) Run(x *Exec, out, in []device.Tensor) error {
	*f.runs++
	x.Copy(out[0], in[0])
	if n := out[0]; *f.runs%2 == 0 {
		x.Fill(n.WithRows(f.spoil+1).Slice(0, f.spoil, f.spoil+1), 0.5)
	}
	return nil
}

func (fickle) Gradient(b *Builder, in, _, grad []Value) []Value {
	return []Value{b.ApplyAll(mix{}, in[0], grad[0])[0]}
}

// turned is a strided view.
type turned struct{ Pure }

func (turned) Kind() string                                      { return "turned" }
func (turned) Cost([]device.Spec) Cost                           { return Cost{} }
func (turned) View(in device.Tensor) device.Tensor               { return in.Transpose(0, 1) }
func (turned) Run(*Exec, []device.Tensor, []device.Tensor) error { return nil }
func (turned) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{device.NewSpec(in[0].DType, in[0].Shape[1], in[0].Shape[0])}, nil
}
func (turned) Gradient(b *Builder, _, _, grad []Value) []Value {
	return []Value{b.Apply(turned{}, grad[0])}
}

// rerunAll is the plan that reruns what it may.
func rerunAll(g *Graph) *Plan {
	p := SaveAll(g)
	for _, n := range g.Nodes {
		if n.IsOp() && n.Phase == Forward && !n.Effects.Has(SideEffect) && !n.Effects.Has(Discrete) {
			p.Entries[n.ID].Choice = Rerun
		}
	}
	return p
}

// checkedMachine reruns everything and checks it.
func checkedMachine(t testing.TB, b *Builder, l CheckLevel) *Machine {
	t.Helper()
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	m := machineUnder(t, g, rerunAll(g))
	if err := m.Check(l); err != nil {
		t.Fatal(err)
	}
	return m
}

// found runs m and returns what a check has found, nil if the run succeeds.
func found(t testing.TB, m *Machine) *RerunError {
	t.Helper()
	err := m.Run(context.Background(), RunOptions{Step: 1})
	var e *RerunError
	if err != nil && (!errors.As(err, &e) || !errors.Is(err, ErrRerun)) {
		t.Fatal(err)
	}
	return e
}

// The op that remembers is named, not those behind it whose results differ as well, nor
// one behind it that remembers too.
func TestCheckNamesTheFirstThatDiffers(t *testing.T) {
	for _, level := range []CheckLevel{CheckOff, CheckShape, CheckChecksum, CheckBitwise} {
		b := New(newStore(t, 1))
		x := b.Input("x", device.Float32, 4, 2)
		w := b.Parameter("w", device.Float32, Constant(2), 4, 2)
		y := b.Scope("layers", 0).ApplyAll(mix{}, x, w)[0]
		y = b.Scope("layers", 1).Apply(fickle{runs: new(int), spoil: 3}, y)
		y = b.Scope("layers", 2).ApplyAll(mix{}, y, w)[0]
		y = b.Scope("layers", 3).Apply(fickle{runs: new(int)}, y)
		y = b.Scope("layers", 4).ApplyAll(mix{}, y, w)[0]
		b.AddLoss("loss", Sum(Reshape(y, 8)))
		b.Output("dw", b.Backward(w)[0])
		m := checkedMachine(t, b, level)
		Feed(m, "x", []float32{1, 2, 3, 4, 5, 6, 7, 8})
		e := found(t, m)
		if level < CheckChecksum {
			if e != nil {
				t.Errorf("%v: %v: the shapes are right", level, e)
			}
			continue
		}
		if e == nil {
			t.Fatalf("%v: found nothing", level)
		}
		if e.Node.Name != "layers.1.fickle:0" || e.Input || e.Index != 0 || e.First.Checksum == e.Again.Checksum ||
			len(e.Inputs) != 1 || e.Inputs[0].Name != "layers.0.mix:0" || e.Inputs[0].Checksum == 0 {
			t.Errorf("%v: %+v", level, e)
		}
		text := e.Error()
		for _, want := range []string{"graph: layers.1.fickle:0: ", "output 0", "layers.0.mix:0 float32[4 2] checksum ", `fickle of "layers.1" in `, "check_test.go:"} {
			if !strings.Contains(text, want) {
				t.Errorf("%v: %q does not tell %q", level, text, want)
			}
		}
		// x·w + x is 21 at [3 0] and 24 at [3 1].
		if level == CheckBitwise && !strings.Contains(text, "float32[4 2] at [3 0]: 21, then 0.5; 2 of 8 elements differ") {
			t.Errorf("%v: %q", level, text)
		}
		if level == CheckChecksum && (e.Element != nil || !strings.Contains(text, ", then layers.1.fickle:0 float32[4 2] checksum ")) {
			t.Errorf("%v: %q", level, text)
		}
	}
}

// Only live rows are compared.
func TestCheckOfDynamicRows(t *testing.T) {
	for _, level := range []CheckLevel{CheckChecksum, CheckBitwise} {
		b := New(newStore(t, 1))
		rows := b.Rows("tokens", 8)
		x := b.RowsInput("x", rows, device.Float32, 8, 2)
		y := b.Apply(fickle{runs: new(int), spoil: 5}, x)
		y = b.ApplyAll(mix{}, y, x)[0]
		b.AddLoss("loss", Sum(Reshape(y, 8, 2, 1)))
		b.Output("dx", b.Backward(x)[0])
		m := checkedMachine(t, b, level)
		x32 := device.Elements[float32](m.Input("x"))
		for i := range x32 {
			x32[i] = float32(i)
		}
		for _, live := range []int{5, 0, 3} {
			m.SetRows(rows, live)
			if e := found(t, m); e != nil {
				t.Errorf("%v: %d rows: %v", level, live, e)
			}
		}
		m.SetRows(rows, 6)
		e := found(t, m)
		if e == nil || e.Node.Kind != "fickle" || !slices.Equal(e.First.Spec.Shape, []int{6, 2}) {
			t.Fatalf("%v: 6 rows: %v", level, e)
		}
		if level == CheckBitwise && (!slices.Equal(e.Element, []int{5, 0}) || e.Values != [2]string{"10", "0.5"} || e.Differing != 2) {
			t.Errorf("%+v", e)
		}
	}
}

// tally brings a row count to the host, one less in every second run.
type tally struct {
	Pure
	runs *int
}

func (tally) Kind() string            { return "tally" }
func (tally) Cost([]device.Spec) Cost { return Cost{} }
func (tally) Outputs([]device.Spec) ([]device.Spec, error) {
	return []device.Spec{{DType: device.Int32, Shape: []int{1}, Place: device.OnHost}}, nil
}
func (c tally) Run(x *Exec, out, _ []device.Tensor) error {
	*c.runs++
	x.Fill(out[0], float64(4-(*c.runs+1)%2))
	return nil
}

// cut takes as many rows as a count on the host says.
type cut struct {
	Pure
	rows device.Rows
}

func (cut) Kind() string            { return "cut" }
func (cut) Cost([]device.Spec) Cost { return Cost{} }
func (cut) LiveRows(in []device.Tensor) (int, error) {
	return int(device.Elements[int32](in[1])[0]), nil
}
func (c cut) Outputs(in []device.Spec) ([]device.Spec, error) {
	out := in[0]
	out.Rows = c.rows
	return []device.Spec{out}, nil
}
func (cut) Run(x *Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0].Slice(0, 0, out[0].Dim(0)))
	return nil
}

// A shape that differs is all that CheckShape sees; with contents, the node that made the
// count is named.
func TestCheckOfShapes(t *testing.T) {
	for level, want := range map[CheckLevel]string{CheckShape: "cut:0", CheckChecksum: "tally:0", CheckBitwise: "tally:0"} {
		b := New(newStore(t, 1))
		x := b.Parameter("x", device.Float32, Constant(1), 5)
		count := b.Apply(tally{runs: new(int)}, x)
		y := b.Apply(cut{rows: b.Rows("cut", 5)}, x, count)
		b.AddLoss("loss", Sum(b.ApplyAll(mix{}, y, y)[0]))
		b.Output("dy", b.Backward(y)[0])
		e := found(t, checkedMachine(t, b, level))
		if e == nil || e.Node.Name != want || e.Input {
			t.Fatalf("%v: %v, want it to name %s", level, e, want)
		}
		if level == CheckShape && !strings.Contains(e.Error(), "cut:0 float32[4], then cut:0 float32[3]; its inputs were the same: x float32[5], tally:0 int32[1] (") {
			t.Error(e)
		}
	}
}

// vandal writes into what it may only read.
type vandal struct{ mix }

func (vandal) Run(x *Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0])
	x.Fill(in[1], 7)
	return nil
}

// An op that overwrites what is saved is not what differs; the value is named.
func TestCheckOfOverwrittenMemory(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 4)
	w := b.Parameter("w", device.Float32, Constant(2), 4)
	y := b.ApplyAll(mix{}, x, w)[0]
	z := b.ApplyAll(mix{}, y, w)[0]
	b.AddLoss("loss", Sum(b.ApplyAll(vandal{}, z, x)[0]))
	b.Output("dw", b.Backward(w)[0])
	m := checkedMachine(t, b, CheckChecksum)
	e := found(t, m)
	if e == nil || e.Node.Name != "mix:0" || !e.Input || e.Index != 0 || e.Again.Name != "x" || !strings.Contains(e.Error(), "was overwritten in between") {
		t.Fatalf("%v", e)
	}
}

// An asynchronous op is compared where it is waited for.
func TestCheckOfLanes(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		b := New(newStore(t, 1))
		x := b.Input("x", device.Float32, 4, 1)
		var op Op = exchange{}
		if wrong {
			op = sent{fickle{runs: new(int), spoil: 2}}
		}
		pending := b.Apply(op, Add(x, x))
		beside := Add(x, x)
		y := b.ApplyAll(mix{}, At(pending).Apply(await{}, pending), beside)[0]
		b.AddLoss("loss", Sum(Reshape(y, 4)))
		b.Output("dx", b.Backward(x)[0])
		m := checkedMachine(t, b, CheckBitwise)
		Feed(m, "x", []float32{1, 2, 3, 4})
		for range 3 {
			switch e := found(t, m); {
			case !wrong && e != nil:
				t.Error(e)
			case wrong && (e == nil || e.Node.Kind != "fickle" || e.Values != [2]string{"6", "0.5"}):
				t.Errorf("found %v", e)
			}
		}
	}
}

// sent is fickle on a lane.
type sent struct{ fickle }

func (sent) Lane() Lane { return "link" }
func (sent) Gradient(b *Builder, _, _, grad []Value) []Value {
	return exchange{}.Gradient(b, nil, nil, grad)
}

// Whatever the graph and the plan, checks find nothing in honest ops, change no result
// and take no memory of the plan.
func TestCheckChangesNothing(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rapid.Check(t, func(t *rapid.T) {
		g, err := randomGraph(t, watchedStore(t, d)).Graph()
		if err != nil {
			t.Fatal(err)
		}
		m := machineUnder(t, g, randomPlan(t, g))
		for i := range device.Elements[float32](m.Input("x")) {
			device.Elements[float32](m.Input("x"))[i] = 0.1 * float32(i%7)
		}
		var want string
		for _, level := range []CheckLevel{CheckOff, CheckBitwise, CheckChecksum, CheckShape, CheckOff} {
			if err := m.Check(level); err != nil {
				t.Fatal(err)
			}
			seen, err := Measure(context.Background(), m, RunOptions{Step: 1})
			if err != nil {
				t.Fatal(err)
			}
			if peak := m.Program().Memory(nil).Peak; seen.Peak != peak || seen.UnwrittenReads != 0 {
				t.Fatalf("%v: measured peak %d, planned %d", level, seen.Peak, peak)
			}
			if got := results(g.Store, m); want == "" {
				want = got
			} else if got != want {
				t.Fatalf("%v: results differ:\n%s\n%s", level, got, want)
			}
		}
	})
}

func TestCheckOfStridedOperands(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Parameter("x", device.Float32, Uniform{-1, 1}, 3, 5)
	y := b.Apply(turned{}, b.ApplyAll(mix{}, x, x)[0])
	y = b.ApplyAll(mix{}, y, y)[0]
	y = b.ApplyAll(mix{}, y, y)[0] // read by backward as what it is made of
	b.AddLoss("loss", Sum(Reshape(y, 15)))
	b.Output("dx", b.Backward(x)[0])
	m := checkedMachine(t, b, CheckBitwise)
	if e := found(t, m); e != nil {
		t.Error(e)
	}
	// Two results of 60 bytes are kept, and the turned one is read by way of a third.
	if got := m.Program().CheckBytes(CheckBitwise); got != 3*device.Alignment {
		t.Errorf("%d bytes", got)
	}
}

func TestCheckBytes(t *testing.T) {
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, 1024)
	y := b.ApplyAll(mix{}, x, x)[0]
	y = b.ApplyAll(mix{}, y, y)[0]
	y = b.ApplyAll(mix{}, y, y)[0] // read by backward alone as what it is made of
	b.AddLoss("loss", Sum(y))
	b.Output("dx", b.Backward(x)[0])
	p := checkedMachine(t, b, CheckBitwise).Program()
	if n := len(p.Reruns()); n != 2 {
		t.Fatalf("%d reruns", n)
	}
	for level, want := range map[CheckLevel]int64{CheckOff: 0, CheckShape: 0, CheckChecksum: 0, CheckBitwise: 2 * 4096} {
		if got := p.CheckBytes(level); got != want {
			t.Errorf("%v: %d bytes, want %d", level, got, want)
		}
	}
}

func TestWarmCheckAllocatesNothing(t *testing.T) {
	b := New(newStore(t, 2))
	x := b.Input("x", device.Float32, 64, 64)
	w := b.Parameter("w", device.Float32, Uniform{-1, 1}, 64, 64)
	h := b.Apply(turned{}, b.ApplyAll(mix{}, x, w)[0])
	h = b.ApplyAll(mix{}, h, w)[0]
	b.AddLoss("l", Sum(Reshape(b.ApplyAll(mix{}, h, w)[0], 4096)))
	b.Output("dw", b.Backward(w)[0])
	m := checkedMachine(t, b, CheckOff)
	for _, level := range []CheckLevel{CheckOff, CheckShape, CheckChecksum, CheckBitwise} {
		if err := m.Check(level); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10, func() {
			if err := m.Run(context.Background(), RunOptions{Step: 1}); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations in a warm run", level, n)
		}
	}
}

func TestParseCheckLevel(t *testing.T) {
	for i, name := range CheckNames() {
		if l, err := ParseCheckLevel(name); err != nil || l != CheckLevel(i) || l.String() != name {
			t.Errorf("%q: %v, %v", name, l, err)
		}
	}
	if _, err := ParseCheckLevel("bits"); err == nil || !strings.Contains(err.Error(), `unknown check "bits": want one of ["off" "shape" "checksum" "bitwise"]`) {
		t.Error(err)
	}
}

// Different bits give different texts.
func TestElementsAreTold(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b, err := d.Alloc(device.OnHost, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	for dtype, want := range map[device.DType]string{
		device.Float32: "[0 -0]", device.Float64: "[5e-324 -0]", device.Int32: "[0 -2147483648]", device.Int64: "[1 -9223372036854775808]",
		device.Uint8: "[0 128]", device.BFloat16: "[0x0000 0x8000]",
	} {
		t2 := device.NewTensor(b, 0, dtype, 2)
		raw := device.Raw(t2)
		clear(raw)
		raw[len(raw)-1] = 0x80 // the sign of the second
		if size := dtype.Size(); size == 8 {
			raw[0] = 1
		}
		if got := fmt.Sprint([]string{element(t2, 0), element(t2, 1)}); got != want {
			t.Errorf("%v: %s, want %s", dtype, got, want)
		}
	}
}
