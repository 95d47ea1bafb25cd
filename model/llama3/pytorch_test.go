package llama3_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lethe-go/lethe/device"
)

// Bounds on what may differ from PyTorch, as a share of a tensor's norm or of a
// loss. Float64 differs by the order of sums; float32 is held against PyTorch's
// float64, from which PyTorch's own float32 is up to 6e-7 away.
var tolerances = map[device.DType]float64{device.Float64: 1e-11, device.Float32: 3e-6}

func TestAgainstPyTorch(t *testing.T) {
	for _, name := range []string{"debugmodel", "tiny"} {
		g := readGolden(t, name)
		for _, dtype := range []device.DType{device.Float64, device.Float32} {
			t.Run(fmt.Sprintf("%s/%v", name, dtype), func(t *testing.T) { g.check(t, dtype) })
		}
	}
}

func (g *golden) setup(t *testing.T, dtype device.DType) setup {
	s := setup{config: g.Config.model(), batch: g.batch(), seed: g.Seed}
	s.config.DType = dtype
	documents := 0
	for _, p := range s.batch.Positions {
		if p == 0 {
			documents++
		}
	}
	if s.batch.Valid != g.Labels || documents != g.Documents {
		t.Fatalf("batch of %d labels and %d documents, golden has %d and %d", s.batch.Valid, documents, g.Labels, g.Documents)
	}
	return s
}

func (g *golden) check(t *testing.T, dtype device.DType) {
	m := g.setup(t, dtype).build(t)
	if len(m.names) != len(g.Parameters) {
		t.Errorf("%d parameters, PyTorch has %d", len(m.names), len(g.Parameters))
	}
	for name, want := range g.Parameters {
		g.checkInitial(t, m, name, want, dtype)
	}
	if t.Failed() {
		t.Fatal("parameters differ: no use to compare more")
	}
	tolerance := tolerances[dtype]
	worst := difference{limit: tolerance}
	worst.add(t, "loss", m.run(t, 1), g.Loss, g.Loss)
	worst.add(t, "gradient norm", m.gradNorm(), g.GradNorm, g.GradNorm)
	for name, want := range g.Parameters {
		gradient := m.gradient(name)
		worst.add(t, name+": norm", norm(gradient), want.GradNorm, want.GradNorm)
		worst.add(t, name+": projection", g.projection(name, gradient), want.GradProjection, want.GradNorm)
		for i, v := range g.samples(name, gradient, len(want.GradSamples)) {
			worst.add(t, fmt.Sprintf("%s: sample %d", name, i), v, want.GradSamples[i], want.GradNorm)
		}
	}
	t.Logf("loss %.12f, worst difference %v", m.Scalar("cross_entropy"), worst)
}

// checkInitial demands the same parameters, to the last bit of the dtype or,
// since inverse error functions differ, a few.
func (g *golden) checkInitial(t *testing.T, m *model, name string, want goldenParameter, dtype device.DType) {
	v := m.store.Variable(name)
	if v == nil {
		t.Errorf("no parameter %s", name)
		return
	}
	if fmt.Sprint(v.Global) != fmt.Sprint(want.Shape) {
		t.Errorf("%s is %v, PyTorch's is %v", name, v.Global, want.Shape)
		return
	}
	for i, v := range g.samples(name, m.parameter(name), len(want.Initial)) {
		w := want.Initial[i]
		ulp := math.Nextafter(math.Abs(w), math.Inf(1)) - math.Abs(w)
		limit := 8 * ulp
		if dtype == device.Float32 {
			w = float64(float32(w))
			limit = float64(math.Nextafter32(float32(math.Abs(w)), 10)) - math.Abs(w)
		}
		if math.Abs(v-w) > limit {
			t.Errorf("%s: initial sample %d is %v, PyTorch's is %v: %v apart", name, i, v, w, v-w)
		}
	}
}

// difference keeps the largest share of what differs.
type difference struct {
	limit float64
	share float64
	what  string
}

func (d *difference) add(t *testing.T, what string, have, want, size float64) {
	t.Helper()
	share := math.Abs(have-want) / size
	if !(share <= d.limit) {
		t.Errorf("%s is %v, PyTorch's is %v: differs by %.1e of the norm, the limit is %.0e", what, have, want, share, d.limit)
	}
	if share > d.share {
		d.share, d.what = share, what
	}
}

func (d difference) String() string { return fmt.Sprintf("%.1e (%s)", d.share, d.what) }

func TestAdamWAgainstPyTorch(t *testing.T) {
	g := readGolden(t, "tiny")
	m := g.setup(t, device.Float64).build(t)
	opt := newAdamW(t, m, g.Optimizer)
	worst := difference{limit: 1e-9} // Adam divides by gradients: small ones amplify rounding
	for i, want := range g.Steps {
		worst.add(t, fmt.Sprintf("step %d: loss", i+1), m.run(t, i+1), want.Loss, want.Loss)
		worst.add(t, fmt.Sprintf("step %d: gradient norm", i+1), m.gradNorm(), want.GradNorm, want.GradNorm)
		opt.update(t, i+1)
		for name, w := range want.Parameters {
			p := m.parameter(name)
			worst.add(t, fmt.Sprintf("step %d: %s: norm", i+1, name), norm(p), w.Norm, w.Norm)
			for j, v := range g.samples(name, p, len(w.Samples)) {
				worst.add(t, fmt.Sprintf("step %d: %s: sample %d", i+1, name, j), v, w.Samples[j], w.Norm)
			}
		}
	}
	t.Logf("worst difference %v", worst)
}

// adamW updates a model's parameters with the device's kernels.
type adamW struct {
	goldenOptimizer
	*model
	m, v map[string]device.Tensor
	// factor is what clipping multiplies gradients with.
	factor device.Tensor
}

func newAdamW(t *testing.T, m *model, o goldenOptimizer) *adamW {
	a := &adamW{o, m, map[string]device.Tensor{}, map[string]device.Tensor{}, device.Tensor{}}
	alloc := func(shape ...int) device.Tensor {
		spec := device.NewSpec(device.Float64, shape...)
		buffer, err := m.device.Alloc(device.OnDevice, spec.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { buffer.Free() })
		return device.NewTensor(buffer, 0, device.Float64, shape...)
	}
	for _, name := range m.names {
		shape := m.store.Variable(name).Global
		a.m[name], a.v[name] = alloc(shape...), alloc(shape...)
	}
	a.factor = alloc()
	return a
}

func (a *adamW) update(t *testing.T, step int) {
	t.Helper()
	q := a.device.NewQueue()
	defer q.Close()
	setFloats(a.factor, []float64{a.gradNorm()})
	q.ClipFactor(a.factor, a.factor, a.MaxNorm)
	for _, name := range a.names {
		q.AdamW(a.store.Variable(name).Tensor(), a.m[name], a.v[name], a.Output(name), a.factor, device.AdamW{
			LearningRate: a.LR, Beta1: a.Beta1, Beta2: a.Beta2, Epsilon: a.Eps, WeightDecay: a.WeightDecay, Step: step})
	}
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
}
