package train

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/philox"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// optimizerGolden is what testdata/optimizer_golden.py wrote.
type optimizerGolden struct {
	Seed   uint64
	Steps  int
	Shapes map[string][]int
	Cases  []optimizerCase
}

type optimizerCase struct {
	Name, Config         string
	LearningRates        []float64            `json:"learning_rates"`
	GradNorms            []float64            `json:"grad_norms"`
	Parameters, Averages map[string][]float64 // after the last step
}

func readOptimizerGolden(t *testing.T) optimizerGolden {
	t.Helper()
	text, err := os.ReadFile("testdata/optimizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var g optimizerGolden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func (x optimizerCase) parse(t testing.TB, dtype string, steps int) Config {
	t.Helper()
	c, err := ParseConfig("golden", []byte(x.Config))
	if err != nil {
		t.Fatal(err)
	}
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.Steps, c.Training.DType = steps, dtype
	c.Training.SeqLen, c.Training.LocalBatchSize = 4, 1
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// parts is a model with the parameters of the golden, an embedding, a norm and an
// output layer among them. The losses only give all of them a gradient.
type parts struct{ dtype device.DType }

func (parts) Name() string              { return "parts" }
func (parts) Vocab() int                { return 5 }
func (parts) Parameters() int64         { return 128 }
func (parts) FLOPsPerToken(int) float64 { return 1 }

func (p parts) Build(b *graph.Builder, in Inputs, _ Policies) {
	x := nn.Embedding(b.Scope("tok_embeddings"), in.Tokens, nn.EmbeddingConfig{Vocab: 5, Dim: 4, DType: p.dtype})
	layer := b.Scope("layers", 0)
	x = nn.RMSNorm(layer.Scope("norm"), x, 1e-5)
	others := []graph.Value{
		layer.Scope("wq").Parameter("weight", p.dtype, graph.Zeros, 6, 4),
		layer.Scope("wq").Parameter("bias", p.dtype, graph.Zeros, 6),
		layer.Scope("wo").Parameter("weight", p.dtype, graph.Zeros, 4, 6),
		layer.Scope("experts").Parameter("w1", p.dtype, graph.Zeros, 2, 3, 5),
	}
	for _, v := range others {
		b.AddLoss(v.Name(), graph.Sum(v))
	}
	b.AddLoss("loss", nn.OutputLoss(b.Scope("output"), x, in.Labels, in.Scale, nn.OutputLossConfig{Vocab: 5}))
}

// updater runs the norm and update Programs of a config on drawn gradients.
type updater struct {
	t        testing.TB
	seed     uint64
	rank     *rank
	schedule Schedule
	// norms of the gradients and learning rates of the steps so far
	norms, rates []float64
}

func newUpdater(t testing.TB, c Config, seed uint64, workers int) *updater {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	store := graph.NewStore(dev, graph.StoreOptions{Seed: seed})
	dtype, err := device.ParseDType(c.Training.DType)
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := newCompiler(c, Options{Model: parts{dtype}}, store, ends{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rank{config: c, store: store}
	if r.programs, _, err = compiler.compile(); err != nil {
		t.Fatal(err)
	}
	if err := r.allocate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
		dev.Close()
	})
	u := &updater{t: t, seed: seed, rank: r}
	u.schedule, _ = NewSchedule(c.LRScheduler, c.Training.Steps)
	for _, v := range u.parameters() {
		u.draw(v, philox.Key(seed, v.Name, 0))
	}
	return u
}

func (u *updater) parameters() []*graph.Variable {
	var list []*graph.Variable
	for _, v := range u.rank.store.Variables() {
		if v.Kind == graph.Parameter {
			list = append(list, v)
		}
	}
	return list
}

// draw fills a variable with standard normal numbers.
func (u *updater) draw(v *graph.Variable, key uint64) {
	for i := range v.Spec.Len() {
		x := philox.Normal(philox.Uint64(key, uint64(i), 0, 0))
		if v.Spec.DType == device.Float32 {
			device.Elements[float32](v.Tensor())[i] = float32(x)
		} else {
			device.Elements[float64](v.Tensor())[i] = x
		}
	}
}

func (u *updater) run(steps int) {
	u.t.Helper()
	for step := 1; step <= steps; step++ {
		for _, v := range u.parameters() {
			u.draw(u.rank.store.Variable(gradientPrefix+v.Name), philox.Key(u.seed, "gradient."+v.Name, step))
		}
		if err := u.rank.update(context.Background(), step, u.schedule.Factor(step-1)); err != nil {
			u.t.Fatal(err)
		}
		u.norms = append(u.norms, u.rank.result.GradNorm)
		u.rates = append(u.rates, u.rank.machines.rates[0][0])
	}
}

func (u *updater) values(name string) []float64 {
	v := u.rank.store.Variable(name)
	if v == nil {
		u.t.Fatalf("no variable %s", name)
	}
	if v.Spec.DType == device.Float64 {
		return device.Elements[float64](v.Tensor())
	}
	var list []float64
	for _, x := range device.Elements[float32](v.Tensor()) {
		list = append(list, float64(x))
	}
	return list
}

// difference is the largest one of two lists, relative to the larger of the second
// list's element and least.
func difference(have, want []float64, least float64) float64 {
	if len(have) != len(want) {
		return math.Inf(1)
	}
	worst := 0.0
	for i, w := range want {
		d := math.Abs(have[i]-w) / max(math.Abs(w), least)
		if !(d <= worst) {
			worst = d
		}
	}
	return worst
}

// The update Program of every optimizer is PyTorch's over the whole schedule.
func TestOptimizersEqualPyTorch(t *testing.T) {
	g := readOptimizerGolden(t)
	for _, x := range g.Cases {
		t.Run(x.Name, func(t *testing.T) {
			u := newUpdater(t, x.parse(t, "float64", g.Steps), g.Seed, 2)
			u.run(g.Steps)
			if d := difference(u.rates, x.LearningRates, 0); d > 1e-15 {
				t.Errorf("learning rates differ by %.1e", d)
			}
			if d := difference(u.norms, x.GradNorms, 0); d > 1e-13 {
				t.Errorf("gradient norms differ by %.1e", d)
			}
			worst := 0.0
			check := func(prefix string, want map[string][]float64) {
				for name, values := range want {
					d := difference(u.values(prefix+name), values, 0)
					worst = max(worst, d)
					if d > 1e-13 {
						t.Errorf("%s%s differs by %.1e", prefix, name, d)
					}
				}
			}
			check("", x.Parameters)
			check(averagePrefix, x.Averages)
			t.Logf("largest relative difference %.1e", worst)
			if len(x.Parameters) != len(g.Shapes) || len(u.parameters()) != len(g.Shapes) {
				t.Error("some parameter was not compared")
			}
		})
	}
}

// In float32 the rounding of 50 steps stays below 2⁻¹⁹ of a parameter, or of 1 where
// that is more.
func TestOptimizersInFloat32(t *testing.T) {
	g := readOptimizerGolden(t)
	for _, x := range g.Cases {
		t.Run(x.Name, func(t *testing.T) {
			u := newUpdater(t, x.parse(t, "float32", g.Steps), g.Seed, 2)
			u.run(g.Steps)
			worst := 0.0
			for name, want := range x.Parameters {
				worst = max(worst, difference(u.values(name), want, 1))
			}
			t.Logf("largest difference %.1e", worst)
			if worst > 0x1p-19 {
				t.Errorf("float32 is off by %.1e", worst)
			}
		})
	}
}
