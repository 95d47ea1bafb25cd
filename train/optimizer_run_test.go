package train_test

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/train"
)

// routed is a small model with four experts.
func routed(dtype device.DType) train.Model {
	return train.DeepSeekV3("tiny", deepseekv3.Config{Dim: 16, Layers: 2, DenseLayers: 1, Vocab: 257, Hidden: 24,
		Heads: 2, KVLoRA: 8, NoPEDims: 4, RoPEDims: 4, ValueDim: 4, RoPE: attention.RoPE{Theta: 1e4},
		Experts: 4, TopK: 2, ExpertHidden: 12, SharedExperts: 1, Score: moe.Sigmoid, RouteNorm: true, RouteScale: 1,
		LoadBalance: 1e-3, NormEps: 1e-5, DType: dtype})
}

func muonConfig(t *testing.T) train.Config {
	c := tinyConfig(t)
	c.Optimizer.Name = "Muon"
	c.Optimizer.EMADecay = 0.9
	c.Optimizer.Groups = []train.OptimizerGroup{{Pattern: "moe.router", Name: "SGD", LR: new(float64)}}
	*c.Optimizer.Groups[0].LR = 1e-3
	return c
}

// A run with momenta and averages that is stopped and goes on equals one that was not,
// bit for bit.
func TestMuonResumes(t *testing.T) {
	run := func(c train.Config, stop int) {
		o := train.Options{Model: routed(device.Float32)}
		if stop > 0 {
			o.Hooks = []train.Hook{{Name: "stop", AfterStep: func(_ context.Context, r *train.Trainer, _ train.StepResult) error {
				if r.Steps() == stop {
					return train.ErrEnough
				}
				return nil
			}}}
		}
		if err := newTrainer(t, c, o).Run(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	whole := muonConfig(t)
	run(whole, 0)
	parts := muonConfig(t)
	for _, stop := range []int{1, 3, 0} {
		run(parts, stop)
	}
	wantEqual(t, whole, parts)
}

// With the experts on two ranks, each rank makes the momentum of its own orthogonal:
// the state is that of one rank with all of them.
func TestMuonOnTwoRanks(t *testing.T) {
	states := map[int]map[string][]float64{}
	for _, ranks := range []int{1, 2} {
		c := muonConfig(t)
		c.Training.DType = "float64"
		c.Parallelism.ExpertParallelDegree = ranks
		c.Training.LocalBatchSize = 4 / ranks
		r := newTrainer(t, c, train.Options{Model: routed(device.Float64)})
		steps(t, r, 4)
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
		states[ranks] = savedState(t, c)
	}
	if len(states[1]) == 0 || len(states[1]) != len(states[2]) {
		t.Fatalf("%d and %d tensors", len(states[1]), len(states[2]))
	}
	experts := 0
	for name, one := range states[1] {
		two := states[2][name]
		if len(one) != len(two) {
			t.Errorf("%s has %d elements on one rank, %d on two", name, len(one), len(two))
			continue
		}
		for i := range one {
			if math.Abs(one[i]-two[i]) > 1e-11*max(1, math.Abs(one[i])) {
				t.Errorf("%s: element %d is %v on one rank, %v on two", name, i, one[i], two[i])
				break
			}
		}
		if name == "optimizer.momentum_buffer.layers.1.moe.experts.w1" || name == "ema.layers.1.moe.experts.w1" {
			experts++
		}
	}
	if experts != 2 {
		t.Errorf("%d of momentum and average of the experts are saved", experts)
	}
}

// savedState reads the newest state of float64 variables.
func savedState(t *testing.T, c train.Config) map[string][]float64 {
	t.Helper()
	s, _, err := (train.StateFolder{Path: c.StatePath()}).LoadLatest()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var tensors []train.Tensor
	for _, info := range s.Tensors() {
		tensors = append(tensors, train.Tensor{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: make([]byte, info.Bytes)})
	}
	if err := s.Read(tensors); err != nil {
		t.Fatal(err)
	}
	values := map[string][]float64{}
	for _, x := range tensors {
		for b := range slices.Chunk(x.Data, 8) {
			values[x.Name] = append(values[x.Name], math.Float64frombits(binary.NativeEndian.Uint64(b)))
		}
	}
	return values
}

// signs is an optimizer of a user: it steps by the sign of a momentum, as Lion does
// without its second decay, and is built of nodes alone.
type signs struct{}

func (signs) Name() string { return "signs" }

func (signs) Apply(b *graph.Builder, u train.Update) {
	momentum := u.State(b, "average")
	next := graph.Add(momentum, u.Gradient)
	b.Assign(momentum, next)
	b.Apply(signStep{}, u.Value, next, u.LearningRate)
}

// signStep is param ← param − lr·sign(x): the hyperbolic tangent of what is large.
type signStep struct{}

func (signStep) Kind() string                                 { return "sign_step" }
func (signStep) Effects() graph.Effects                       { return 0 }
func (signStep) Mutates() []int                               { return []int{0} }
func (signStep) Outputs([]device.Spec) ([]device.Spec, error) { return graph.TokenOutput(), nil }
func (signStep) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(6*float64(in[0].Len()), in, in[:1])
}
func (signStep) Workspace(in []device.Spec, _ int) int64 { return in[0].Bytes() }
func (signStep) Run(x *graph.Exec, _, in []device.Tensor) error {
	sign := x.ScratchLike(0, in[1])
	x.AddScaled(sign, in[1], in[1], 1e30)
	x.Unary(device.Tanh, sign, sign)
	x.AddScaled(in[0], in[0], sign, -device.Elements[float64](in[2])[0])
	return nil
}

// An optimizer of the user trains, keeps state that is saved, and is refused groups.
func TestOptionsOptimizer(t *testing.T) {
	c := tinyConfig(t)
	c.Training.DType = "float64"
	c.Optimizer.LR = 5e-3
	c.Training.Steps = 20
	r := newTrainer(t, c, train.Options{Optimizer: signs{}})
	before := append([]float64(nil), device.Elements[float64](r.Store().Variable("norm.weight").Tensor())...)
	first := steps(t, r, 1)[0]
	for i, x := range device.Elements[float64](r.Store().Variable("norm.weight").Tensor()) {
		if d := math.Abs(x - before[i]); math.Abs(d/first.LearningRate-1) > 1e-9 {
			t.Errorf("norm.weight moved by %v in the first step, want the learning rate %v", d, first.LearningRate)
		}
	}
	if last := steps(t, r, 15)[14]; !(last.Loss < first.Loss-0.5) {
		t.Errorf("the loss goes from %v to %v", first.Loss, last.Loss)
	}
	if v := r.Store().Variable("optimizer.average.norm.weight"); v == nil || v.Kind != graph.State {
		t.Errorf("its state is %v", v)
	}
	if r.Store().Variable("optimizer.exp_avg.norm.weight") != nil {
		t.Error("moments of an optimizer that is not used are kept")
	}
	c = muonConfig(t)
	if _, err := train.New(context.Background(), c, train.Options{Model: tiny(device.Float32), Optimizer: signs{}}); err == nil ||
		!strings.Contains(err.Error(), "optimizer.groups: the program that trains brings an optimizer of its own, signs; remove the groups") {
		t.Errorf("groups beside an optimizer: %v", err)
	}
}
