// Package modeltest builds models for tests, compares their bits, and holds them
// against golden values from PyTorch.
package modeltest

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/devicetest"
	"github.com/lethe-go/lethe/graph"
)

// Inputs of a model for a batch of packed documents.
type Inputs struct {
	Tokens, Labels, Positions, DocumentStart graph.Value
	Scale                                    graph.Value
}

// NewInputs declares the inputs for batch sequences of seq tokens.
func NewInputs(b *graph.Builder, batch, seq int, dtype device.DType) Inputs {
	if dtype == device.Invalid {
		dtype = device.Float32
	}
	in := func(name string) graph.Value { return b.Input(name, device.Int32, batch, seq) }
	return Inputs{
		Tokens: in("tokens"), Labels: in("labels"), Positions: in("positions"), DocumentStart: in("document_start"),
		Scale: b.Input("scale", dtype),
	}
}

// Setup is everything that a run depends on, and what it must not depend on.
type Setup struct {
	// Build adds the model and its loss "cross_entropy".
	Build func(b *graph.Builder, in Inputs)
	DType device.DType
	Batch data.Batch
	Seed  uint64
	// Prepare changes variables before the first run, if it is not nil.
	Prepare func(*graph.Store)

	Workers int
}

// Model is a built model whose gradients are outputs under their parameters' names.
type Model struct {
	*graph.Machine
	Store  *graph.Store
	Device device.Device
	Names  []string // of parameters
}

// New compiles the loss and all gradients of s.
func (s Setup) New(t testing.TB) *Model {
	t.Helper()
	if s.Workers == 0 {
		s.Workers = 2
	}
	m := &Model{Device: NewDevice(t, s.Workers)}
	m.Store = graph.NewStore(m.Device, graph.StoreOptions{Seed: s.Seed})
	t.Cleanup(func() { m.Store.Close() })
	b := graph.New(m.Store)
	s.Build(b, NewInputs(b, s.Batch.Rows, s.Batch.SeqLen, s.DType))
	m.Names = Differentiate(b)
	m.compile(t, b)
	if s.Prepare != nil {
		s.Prepare(m.Store)
	}
	s.feed(t, m)
	return m
}

// Evaluation compiles the loss alone, on the variables of m.
func (s Setup) Evaluation(t testing.TB, m *Model) *Model {
	t.Helper()
	e := &Model{Store: m.Store, Device: m.Device}
	b := graph.New(m.Store)
	s.Build(b, NewInputs(b, s.Batch.Rows, s.Batch.SeqLen, s.DType))
	e.compile(t, b)
	s.feed(t, e)
	return e
}

func (m *Model) compile(t testing.TB, b *graph.Builder) {
	t.Helper()
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
	t.Cleanup(func() { m.Close() })
}

// NewDevice returns a CPU that is closed with the test.
func NewDevice(t testing.TB, workers int) device.Device {
	t.Helper()
	d, err := cpu.New(cpu.Options{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Differentiate makes all gradients outputs under their parameters' names.
func Differentiate(b *graph.Builder) (names []string) {
	parameters := b.Parameters()
	for i, g := range b.Backward(parameters...) {
		names = append(names, parameters[i].Name())
		b.Output(parameters[i].Name(), g)
	}
	return names
}

// CountDeclared adds up what a Store declares: all parameters, and those of norms.
// Nothing may be allocated.
func CountDeclared(t testing.TB, s *graph.Store) (parameters, norms int64) {
	t.Helper()
	for _, v := range s.Variables() {
		if !v.Tensor().IsZero() {
			t.Errorf("%s is allocated", v.Name)
		}
		if v.Kind != graph.Parameter {
			continue
		}
		parameters += int64(v.Spec.Len())
		if strings.HasSuffix(v.Name, "norm.weight") {
			norms += int64(v.Spec.Len())
		}
	}
	return parameters, norms
}

func (s Setup) feed(t testing.TB, m *Model) {
	t.Helper()
	for name, values := range map[string][]int32{
		"tokens": s.Batch.Tokens, "labels": s.Batch.Labels, "positions": s.Batch.Positions, "document_start": s.Batch.DocumentStart,
	} {
		if err := graph.Feed(m.Machine, name, values); err != nil {
			t.Fatal(err)
		}
	}
	devicetest.SetFloats(m.Input("scale"), []float64{1 / float64(s.Batch.Valid)})
}

// Pass makes one pass and returns the loss.
func (m *Model) Pass(t testing.TB, step int) float64 {
	t.Helper()
	if err := m.Run(context.Background(), graph.RunOptions{Step: step}); err != nil {
		t.Fatal(err)
	}
	return m.Scalar("cross_entropy")
}

// Gradient and Parameter return copies.
func (m *Model) Gradient(name string) []float64 { return devicetest.Floats(m.Output(name)) }
func (m *Model) Parameter(name string) []float64 {
	return devicetest.Floats(m.Store.Variable(name).Tensor())
}

// GradNorm is the norm of all gradients.
func (m *Model) GradNorm() float64 {
	sum := 0.0
	for _, name := range m.Names {
		n := Norm(m.Gradient(name))
		sum += n * n
	}
	return math.Sqrt(sum)
}

// Norm is the Euclidean one.
func Norm(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v * v
	}
	return math.Sqrt(sum)
}
