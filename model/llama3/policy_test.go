package llama3_test

import (
	"fmt"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/model/internal/modeltest"
	"github.com/lethe-go/lethe/model/llama3"
)

func everyLayer(p checkpoint.Policy) func(int) checkpoint.Policy {
	return func(int) checkpoint.Policy { return p }
}

var policies = []struct {
	name   string
	policy func(layer int) checkpoint.Policy
}{
	{"none", everyLayer(checkpoint.None())},
	{"selective", everyLayer(checkpoint.Selective())},
	{"full", everyLayer(checkpoint.Full())},
	{"one of each", func(l int) checkpoint.Policy {
		return []checkpoint.Policy{checkpoint.Full(), checkpoint.Selective(), checkpoint.None()}[l%3]
	}},
	{"save attention", everyLayer(checkpoint.SaveKinds("attention"))},
}

// three layers, so that a layer has neighbours on both sides; documents, grouped
// heads, a norm of queries and keys, and more rows than one tile of any kernel.
type policySetup struct {
	modeltest.Setup
	config llama3.Config
	policy func(layer int) checkpoint.Policy
}

func newPolicySetup(dtype device.DType, dropout float64) *policySetup {
	config := goldenConfig{
		Dim: 96, Layers: 3, Heads: 6, KVHeads: 2, HeadDim: 16, Hidden: 200, Vocab: 300, NormEps: 1e-5, QKNorm: true,
		RopeTheta: 1e4, RopeFactor: 8, RopeLowFreq: 1, RopeHighFreq: 4, RopeOriginal: 128}.model()
	config.Dropout = dropout
	g := modeltest.Golden[goldenConfig]{Seed: 11, Batch: 2, Seq: 160}
	return &policySetup{Setup: modeltest.Setup{DType: dtype, Batch: g.Draw(config.Vocab), Seed: g.Seed}, config: config}
}

func (s *policySetup) model(t *testing.T) *modeltest.Model {
	s.Build = build(s.config, s.policy, s.DType)
	return s.New(t)
}

// TestSameBits runs every policy on 1, 2 and 3 workers and demands the same loss
// and gradients, bit for bit, with and without dropout, at two steps.
func TestSameBits(t *testing.T) {
	for _, dropout := range []float64{0, 0.1} {
		s := newPolicySetup(device.Float32, dropout)
		s.Workers = 1
		want := s.model(t).Bits(t, 2)
		if same := want["loss 1"][0] == want["loss 2"][0]; same != (dropout == 0) {
			t.Errorf("dropout %g: losses of two steps are equal: %v", dropout, same)
		}
		for _, p := range policies {
			for workers := 1; workers <= 3; workers++ {
				t.Run(fmt.Sprintf("dropout %g/%s/%d workers", dropout, p.name, workers), func(t *testing.T) {
					s.policy, s.Workers = p.policy, workers
					s.model(t).Bits(t, 2).Compare(t, want)
				})
			}
		}
	}
}

// TestSameBitsFloat64 is smaller: the float64 kernels are for checks and slow.
func TestSameBitsFloat64(t *testing.T) {
	s := newPolicySetup(device.Float64, 0.1)
	s.Workers = 1
	want := s.model(t).Bits(t, 1)
	s.Workers = 3
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			s.policy = p.policy
			s.model(t).Bits(t, 1).Compare(t, want)
		})
	}
}

// TestPoliciesTradeMemory makes sure that TestSameBits compares different
// programs: a policy that saves less needs less memory and reruns more.
func TestPoliciesTradeMemory(t *testing.T) {
	saved, flops := map[string]int64{}, map[string]float64{}
	for _, p := range policies {
		s := newPolicySetup(device.Float32, 0.1)
		s.policy = p.policy
		program := s.model(t).Program()
		saved[p.name], flops[p.name] = program.Bound().Saved, program.RecomputedFLOPs()
		t.Logf("%-14s saves %8d bytes, peak %8d, reruns %10.0f FLOPs in %d nodes",
			p.name, saved[p.name], program.Bound().Peak, flops[p.name], len(program.Reruns()))
	}
	if !(saved["full"] < saved["selective"] && saved["selective"] < saved["none"]) {
		t.Errorf("saved bytes %v: want full < selective < none", saved)
	}
	if !(flops["none"] == 0 && 0 < flops["selective"] && flops["selective"] < flops["full"]) {
		t.Errorf("recomputed FLOPs %v: want none = 0 < selective < full", flops)
	}
}
