package llama3_test

import (
	"fmt"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/devicetest"
	"github.com/lethe-go/lethe/model/internal/modeltest"
)

// Bounds on what may differ from PyTorch, as a share of a tensor's norm or of a
// loss. Float64 differs by the order of sums; float32 is held against PyTorch's
// float64, from which PyTorch's own float32 is up to 6e-7 away.
var tolerances = map[device.DType]float64{device.Float64: 1e-11, device.Float32: 3e-6}

func TestAgainstPyTorch(t *testing.T) {
	for _, name := range []string{"debugmodel", "tiny"} {
		g := modeltest.Read[goldenConfig](t, name)
		for _, dtype := range []device.DType{device.Float64, device.Float32} {
			m := func(t *testing.T) *modeltest.Model { return goldenSetup(t, g, dtype).New(t) }
			t.Run(fmt.Sprintf("%s/%v", name, dtype), func(t *testing.T) { g.Check(t, m(t), dtype, tolerances[dtype]) })
		}
	}
}

func TestAdamWAgainstPyTorch(t *testing.T) {
	g := modeltest.Read[goldenConfig](t, "tiny")
	m := goldenSetup(t, g, device.Float64).New(t)
	opt := newAdamW(t, m, g.Optimizer)
	worst := modeltest.Difference{Limit: 1e-9} // Adam divides by gradients: small ones amplify rounding
	for i, want := range g.Steps {
		worst.Add(t, fmt.Sprintf("step %d: loss", i+1), m.Pass(t, i+1), want.Loss, want.Loss)
		worst.Add(t, fmt.Sprintf("step %d: gradient norm", i+1), m.GradNorm(), want.GradNorm, want.GradNorm)
		opt.update(t, i+1)
		for name, w := range want.Parameters {
			p := m.Parameter(name)
			worst.Add(t, fmt.Sprintf("step %d: %s: norm", i+1, name), modeltest.Norm(p), w.Norm, w.Norm)
			for j, v := range g.Samples(name, p, len(w.Samples)) {
				worst.Add(t, fmt.Sprintf("step %d: %s: sample %d", i+1, name, j), v, w.Samples[j], w.Norm)
			}
		}
	}
	t.Logf("worst difference %v", worst)
}

// adamW updates a model's parameters with the device's kernels.
type adamW struct {
	modeltest.Optimizer
	*modeltest.Model
	m, v map[string]device.Tensor
	// factor is what clipping multiplies gradients with.
	factor device.Tensor
}

func newAdamW(t *testing.T, m *modeltest.Model, o modeltest.Optimizer) *adamW {
	a := &adamW{o, m, map[string]device.Tensor{}, map[string]device.Tensor{}, device.Tensor{}}
	alloc := func(shape ...int) device.Tensor {
		spec := device.NewSpec(device.Float64, shape...)
		buffer, err := m.Device.Alloc(device.OnDevice, spec.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { buffer.Free() })
		return device.NewTensor(buffer, 0, device.Float64, shape...)
	}
	for _, name := range m.Names {
		shape := m.Store.Variable(name).Global
		a.m[name], a.v[name] = alloc(shape...), alloc(shape...)
	}
	a.factor = alloc()
	return a
}

func (a *adamW) update(t *testing.T, step int) {
	t.Helper()
	q := a.Device.NewQueue()
	defer q.Close()
	devicetest.SetFloats(a.factor, []float64{a.GradNorm()})
	q.ClipFactor(a.factor, a.factor, a.MaxNorm)
	for _, name := range a.Names {
		q.AdamW(a.Store.Variable(name).Tensor(), a.m[name], a.v[name], a.Output(name), a.factor, device.AdamW{
			LearningRate: a.LR, Beta1: a.Beta1, Beta2: a.Beta2, Epsilon: a.Eps, WeightDecay: a.WeightDecay, Step: step})
	}
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
}
