package llama3_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
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

// bits of a run: the loss and every element of every gradient.
type bits map[string][]uint64

func (s setup) bits(t *testing.T, steps int) bits {
	t.Helper()
	m, out := s.build(t), bits{}
	for step := range steps {
		out[fmt.Sprint("loss ", step+1)] = toBits([]float64{m.run(t, step+1)})
		for _, name := range m.names {
			out[fmt.Sprint(name, " ", step+1)] = toBits(m.gradient(name))
		}
	}
	return out
}

func toBits(values []float64) []uint64 {
	out := make([]uint64, len(values))
	for i, v := range values {
		out[i] = math.Float64bits(v)
	}
	return out
}

func (b bits) compare(t *testing.T, want bits) {
	t.Helper()
	if len(b) != len(want) {
		t.Errorf("%d results, want %d", len(b), len(want))
	}
	for name, w := range want {
		for i, v := range b[name] {
			if v != w[i] {
				t.Errorf("%s: element %d is %v, want %v", name, i, math.Float64frombits(v), math.Float64frombits(w[i]))
				break
			}
		}
	}
}

// three layers, so that a layer has neighbours on both sides; documents, grouped
// heads, a norm of queries and keys, and more rows than one tile of any kernel.
func policySetup(dtype device.DType, dropout float64) setup {
	g := &golden{Seed: 11, Batch: 2, Seq: 160, Config: goldenConfig{
		Dim: 96, Layers: 3, Heads: 6, KVHeads: 2, HeadDim: 16, Hidden: 200, Vocab: 300, NormEps: 1e-5, QKNorm: true,
		RopeTheta: 1e4, RopeFactor: 8, RopeLowFreq: 1, RopeHighFreq: 4, RopeOriginal: 128}}
	s := setup{config: g.Config.model(), batch: g.batch(), seed: g.Seed}
	s.config.DType, s.config.Dropout = dtype, dropout
	return s
}

// TestSameBits runs every policy on 1, 2 and 3 workers and demands the same loss
// and gradients, bit for bit, with and without dropout, at two steps.
func TestSameBits(t *testing.T) {
	for _, dropout := range []float64{0, 0.1} {
		s := policySetup(device.Float32, dropout)
		s.workers = 1
		want := s.bits(t, 2)
		if same := want["loss 1"][0] == want["loss 2"][0]; same != (dropout == 0) {
			t.Errorf("dropout %g: losses of two steps are equal: %v", dropout, same)
		}
		for _, p := range policies {
			for workers := 1; workers <= 3; workers++ {
				t.Run(fmt.Sprintf("dropout %g/%s/%d workers", dropout, p.name, workers), func(t *testing.T) {
					s.policy, s.workers = p.policy, workers
					s.bits(t, 2).compare(t, want)
				})
			}
		}
	}
}

// TestSameBitsFloat64 is smaller: the float64 kernels are for checks and slow.
func TestSameBitsFloat64(t *testing.T) {
	s := policySetup(device.Float64, 0.1)
	s.workers = 1
	want := s.bits(t, 1)
	s.workers = 3
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			s.policy = p.policy
			s.bits(t, 1).compare(t, want)
		})
	}
}

// TestPoliciesTradeMemory makes sure that TestSameBits compares different
// programs: a policy that saves less needs less memory and reruns more.
func TestPoliciesTradeMemory(t *testing.T) {
	saved, flops := map[string]int64{}, map[string]float64{}
	for _, p := range policies {
		s := policySetup(device.Float32, 0.1)
		s.policy = p.policy
		program := s.build(t).Program()
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
