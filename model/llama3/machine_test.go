package llama3_test

import (
	"context"
	"math"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
)

// setup is everything that a run depends on, and what it must not depend on.
type setup struct {
	config llama3.Config
	batch  data.Batch
	seed   uint64

	workers int
	policy  func(layer int) checkpoint.Policy
}

// model is a built model whose gradients are outputs under their parameters' names.
type model struct {
	*graph.Machine
	store  *graph.Store
	device device.Device
	names  []string // of parameters
}

// build compiles the loss and all gradients of s.
func (s setup) build(t testing.TB) *model {
	t.Helper()
	if s.workers == 0 {
		s.workers = 2
	}
	m := &model{device: newDevice(t, s.workers)}
	m.store = graph.NewStore(m.device, graph.StoreOptions{Seed: s.seed})
	b := graph.New(m.store)
	m.names = buildTraining(b, s.config, s.batch.Rows, s.batch.SeqLen, s.policy)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := checkpoint.Resolve(g, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	program, err := graph.Compile(g, graph.CompileOptions{Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	if m.Machine, err = graph.NewMachine(program); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		m.store.Close()
	})
	s.feed(t, m)
	return m
}

func newDevice(t testing.TB, workers int) device.Device {
	t.Helper()
	d, err := cpu.New(cpu.Options{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// buildTraining builds the loss and all gradients, which are outputs under their
// parameters' names.
func buildTraining(b *graph.Builder, c llama3.Config, batch, seq int, policy func(int) checkpoint.Policy) (names []string) {
	buildLoss(b, c, batch, seq, policy)
	parameters := b.Parameters()
	for i, g := range b.Backward(parameters...) {
		names = append(names, parameters[i].Name())
		b.Output(parameters[i].Name(), g)
	}
	return names
}

func buildLoss(b *graph.Builder, c llama3.Config, batch, seq int, policy func(int) checkpoint.Policy) {
	if c.DType == device.Invalid {
		c.DType = device.Float32
	}
	in := func(name string) graph.Value { return b.Input(name, device.Int32, batch, seq) }
	llama3.Build(b, c, llama3.Inputs{
		Tokens: in("tokens"), Labels: in("labels"), Positions: in("positions"), DocumentStart: in("document_start"),
		Scale: b.Input("scale", c.DType),
	}, policy)
}

func (s setup) feed(t testing.TB, m *model) {
	t.Helper()
	for name, values := range map[string][]int32{
		"tokens": s.batch.Tokens, "labels": s.batch.Labels, "positions": s.batch.Positions, "document_start": s.batch.DocumentStart,
	} {
		if err := graph.Feed(m.Machine, name, values); err != nil {
			t.Fatal(err)
		}
	}
	setFloats(m.Input("scale"), []float64{1 / float64(s.batch.Valid)})
}

// run makes one pass and returns the loss.
func (m *model) run(t testing.TB, step int) float64 {
	t.Helper()
	if err := m.Run(context.Background(), graph.RunOptions{Step: step}); err != nil {
		t.Fatal(err)
	}
	return m.Scalar("cross_entropy")
}

// gradient and parameter return copies.
func (m *model) gradient(name string) []float64  { return floats(m.Output(name)) }
func (m *model) parameter(name string) []float64 { return floats(m.store.Variable(name).Tensor()) }

func (m *model) gradNorm() float64 {
	sum := 0.0
	for _, name := range m.names {
		n := norm(m.gradient(name))
		sum += n * n
	}
	return math.Sqrt(sum)
}

func floats(t device.Tensor) []float64 {
	if t.DType() == device.Float64 {
		return append([]float64(nil), device.Elements[float64](t)...)
	}
	out := make([]float64, t.Len())
	for i, v := range device.Elements[float32](t) {
		out[i] = float64(v)
	}
	return out
}

func setFloats(t device.Tensor, values []float64) {
	if t.DType() == device.Float64 {
		copy(device.Elements[float64](t), values)
		return
	}
	for i, v := range values {
		device.Elements[float32](t)[i] = float32(v)
	}
}

func norm(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v * v
	}
	return math.Sqrt(sum)
}
