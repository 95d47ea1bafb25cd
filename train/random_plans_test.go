package train_test

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
	"github.com/lethe-go/lethe/train"
)

// under is a model all of whose layers have one policy.
type under struct {
	train.Model
	policy checkpoint.Policy
}

func (m under) Build(b *graph.Builder, in train.Inputs, p train.Policies) {
	p.Layer = m.policy
	m.Model.Build(b, in, p)
}

// thinned is cross-entropy of logits behind dropout, under a policy.
func thinned(policy checkpoint.Policy) train.Loss {
	return func(b *graph.Builder, logits graph.Value, in train.Inputs) (loss graph.Value) {
		checkpoint.Region(b, policy, func() {
			x := nn.Dropout(b, logits, 0.5)
			loss = nn.Scale(graph.Sum(nn.CrossEntropy(nn.Mul(x, x), in.Labels, 0)), in.Scale)
		})
		return loss
	}
}

// scattered answers for each value by its name and a seed.
func scattered(seed uint64) checkpoint.Policy {
	return func(c checkpoint.Candidate) checkpoint.Decision {
		h := fnv.New64a()
		h.Write([]byte(c.Name))
		answers := []checkpoint.Decision{checkpoint.Auto, checkpoint.MustSave, checkpoint.PreferSave, checkpoint.MustRecompute, checkpoint.PreferRecompute}
		return answers[rand.New(rand.NewPCG(seed, h.Sum64())).IntN(len(answers))]
	}
}

// Any plan trains the bits of saving everything, with dropout.
func TestRandomPlansTrainTheSameBits(t *testing.T) {
	for _, model := range []train.Model{tiny(device.Float32), latent(device.Float32)} {
		c := tinyConfig(t)
		c.State.Enable = false
		with := func(p checkpoint.Policy) ([]train.StepResult, float64) {
			r := newTrainer(t, c, train.Options{Model: under{model, p}, Loss: thinned(p)})
			return steps(t, r, 2), r.RecomputedFLOPs()
		}
		want, none := with(checkpoint.None())
		amounts := map[float64]bool{}
		for seed := range uint64(20) {
			got, recomputed := with(scattered(seed))
			if !slices.Equal(got, want) {
				t.Errorf("%s, seed %d: steps %v, want %v", model.Name(), seed, got, want)
			}
			amounts[recomputed] = true
		}
		if none != 0 || len(amounts) < 15 {
			t.Errorf("%s: %v FLOPs are recomputed to save all, and in other plans %d amounts", model.Name(), none, len(amounts))
		}
	}
}
