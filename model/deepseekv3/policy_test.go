package deepseekv3_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/internal/modeltest"
	"github.com/lethe-go/lethe/moe"
)

var policies = []struct {
	name    string
	options deepseekv3.Options
}{
	{"none", deepseekv3.Options{}},
	{"selective", deepseekv3.Options{Layer: checkpoint.Selective()}},
	{"full", deepseekv3.Options{Layer: checkpoint.Full()}},
	{"full, attention selective", deepseekv3.Options{Layer: checkpoint.Full(), Attention: checkpoint.Selective()}},
	{"full, moe selective", deepseekv3.Options{Layer: checkpoint.Full(), MoE: checkpoint.Selective()}},
	{"attention full, moe selective", deepseekv3.Options{Attention: checkpoint.Full(), MoE: checkpoint.Selective()}},
	{"attention selective, moe full", deepseekv3.Options{Attention: checkpoint.Selective(), MoE: checkpoint.Full()}},
}

// policySetup has a dense layer and two mixtures, so that a mixture has neighbours of
// both kinds; documents, latent queries, groups, and more rows than one tile of any
// kernel.
func policySetup(o deepseekv3.Options) (modeltest.Setup, deepseekv3.Config) {
	c := deepseekv3.Config{
		Dim: 96, Layers: 3, DenseLayers: 1, Vocab: 300, Hidden: 200,
		Heads: 4, QLoRA: 40, KVLoRA: 32, NoPEDims: 24, RoPEDims: 8, ValueDim: 20, RoPE: attention.RoPE{Theta: 1e4},
		Experts: 8, TopK: 3, ExpertHidden: 56, SharedExperts: 1, Score: moe.Sigmoid, RouteNorm: true, RouteScale: 2.5,
		Groups: 4, LimitedGroups: 2, LoadBalance: 1e-3, NormEps: 1e-5,
	}
	o.Training = true
	g := modeltest.Golden[deepseekv3.Config]{Seed: 11, Batch: 2, Seq: 160}
	return modeltest.Setup{Build: build(c, device.Float32, o), Batch: g.Draw(c.Vocab), Seed: g.Seed}, c
}

// bits of two passes, and of what the experts received in both.
func policyBits(t *testing.T, o deepseekv3.Options, workers int) modeltest.Bits {
	t.Helper()
	s, c := policySetup(o)
	s.Workers = workers
	m := s.New(t)
	bits := m.Bits(t, 2)
	tokens := float64(2 * s.Batch.Rows * s.Batch.SeqLen)
	for at, load := range loads(m, c) {
		sum := 0.0
		for _, n := range load {
			sum += n
		}
		if want := tokens * float64(c.TopK); sum != want {
			t.Errorf("%s counted %g choices in two passes, want %g", at, sum, want)
		}
		bits[at] = modeltest.ToBits(load)
	}
	return bits
}

// TestSameBits runs every policy on 1 and 2 workers and demands the same loss,
// gradients and loads of experts, bit for bit.
func TestSameBits(t *testing.T) {
	want := policyBits(t, deepseekv3.Options{}, 1)
	for _, p := range policies {
		for workers := 1; workers <= 2; workers++ {
			t.Run(fmt.Sprintf("%s/%d workers", p.name, workers), func(t *testing.T) {
				policyBits(t, p.options, workers).Compare(t, want)
			})
		}
	}
}

// rerun are the scopes and kinds of a program's reruns.
func rerun(t *testing.T, o deepseekv3.Options) (scopes map[string]int, kinds []string, saved int64) {
	t.Helper()
	s, _ := policySetup(o)
	program := s.New(t).Program()
	scopes = map[string]int{}
	for _, n := range program.Reruns() {
		for _, part := range []string{"attention", "moe", "feed_forward"} {
			if slices.Contains(strings.Split(n.Name, "."), part) {
				scopes[part]++
			}
		}
		kinds = append(kinds, n.Kind)
	}
	return scopes, kinds, program.Bound().Saved
}

// TestPoliciesTradeMemory makes sure that TestSameBits compares different programs.
func TestPoliciesTradeMemory(t *testing.T) {
	saved := map[string]int64{}
	for _, p := range policies {
		scopes, kinds, bytes := rerun(t, p.options)
		saved[p.name] = bytes
		t.Logf("%-30s saves %8d bytes, reruns %v", p.name, bytes, scopes)
		if slices.Contains(kinds, "topk") {
			t.Errorf("%s chooses experts twice", p.name)
		}
	}
	for _, order := range [][]string{
		{"full", "selective", "none"},
		{"full", "full, attention selective", "none"},
		{"full", "full, moe selective", "none"},
	} {
		if !(saved[order[0]] < saved[order[1]] && saved[order[1]] < saved[order[2]]) {
			t.Errorf("saved bytes %v: want them to grow in the order %q", saved, order)
		}
	}
}

// TestSeparatePolicies: the policy of one half of a layer reaches that half alone.
func TestSeparatePolicies(t *testing.T) {
	scopes, _, _ := rerun(t, deepseekv3.Options{Attention: checkpoint.Full()})
	if scopes["attention"] == 0 || len(scopes) != 1 {
		t.Errorf("reruns %v with a full policy for attention alone", scopes)
	}
	scopes, kinds, _ := rerun(t, deepseekv3.Options{MoE: checkpoint.Full()})
	if scopes["moe"] == 0 || len(scopes) != 1 {
		t.Errorf("reruns %v with a full policy for mixtures alone", scopes)
	}
	if !slices.Contains(kinds, "grouped_matmul") {
		t.Errorf("no expert is rerun: %v", kinds)
	}
	scopes, _, _ = rerun(t, deepseekv3.Options{Layer: checkpoint.Full(), Attention: checkpoint.None(), MoE: checkpoint.None()})
	if scopes["attention"] != 0 || scopes["moe"] != 0 {
		t.Errorf("reruns %v although both halves are saved", scopes)
	}
}
