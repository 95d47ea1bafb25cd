package deepseekv3_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/internal/modeltest"
)

// TestModelFLOPs holds the formula against what the ops of a training step count, and
// makes sure that nothing of the largest models is allocated for that.
func TestModelFLOPs(t *testing.T) {
	for _, name := range deepseekv3.Flavors() {
		t.Run(name, func(t *testing.T) {
			const batch, seq = 1, 1024
			c, err := deepseekv3.Flavor(name)
			if err != nil {
				t.Fatal(err)
			}
			store := graph.NewStore(modeltest.NewDevice(t, 1), graph.StoreOptions{})
			b := graph.New(store)
			build(c, device.Float32, deepseekv3.Options{Training: true})(b, modeltest.NewInputs(b, batch, seq, device.Float32))
			modeltest.Differentiate(b)
			g, err := b.Graph()
			if err != nil {
				t.Fatal(err)
			}
			program, err := graph.Compile(g, graph.CompileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			parameters, norms := modeltest.CountDeclared(t, store)
			if parameters != c.Parameters() {
				t.Errorf("%d parameters were declared, Parameters says %d", parameters, c.Parameters())
			}
			// The formula takes the norms' weights for matrices, the ops do not.
			want := (c.FLOPsPerToken(seq) - 6*float64(norms)) * batch * seq
			if have := program.ModelFLOPs(); have != want {
				t.Errorf("ops count %.0f model FLOPs, the formula gives %.0f", have, want)
			}
		})
	}
}

// TestEvaluation: a program without Backward and Training on the same Store gives the
// same loss, and counts no tokens of experts.
func TestEvaluation(t *testing.T) {
	s, c := policySetup(deepseekv3.Options{})
	m := s.New(t)
	want := m.Pass(t, 1)
	counted := fmt.Sprint(loads(m, c))
	s.Build = build(c, device.Float32, deepseekv3.Options{Layer: checkpoint.Full()})
	if have := s.Evaluation(t, m).Pass(t, 1); have != want {
		t.Errorf("loss %v, in training it is %v", have, want)
	}
	if now := fmt.Sprint(loads(m, c)); now != counted {
		t.Errorf("evaluation moved the loads from %s to %s", counted, now)
	}
}

// TestForceBalance: every expert receives equally many tokens.
func TestForceBalance(t *testing.T) {
	s, c := policySetup(deepseekv3.Options{})
	c.ForceBalance = true
	s.Build = build(c, device.Float32, deepseekv3.Options{Training: true})
	m := s.New(t)
	m.Pass(t, 1)
	for at, load := range loads(m, c) {
		for e, n := range load {
			if want := float64(s.Batch.Rows * s.Batch.SeqLen * c.TopK / c.Experts); n != want {
				t.Errorf("%s: expert %d has %g tokens, want %g", at, e, n, want)
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, x := range []struct {
		change func(c *deepseekv3.Config)
		want   string
	}{
		{func(c *deepseekv3.Config) { c.Dim = 0 }, "graph: deepseekv3: Dim is 0: want 1 or more"},
		{func(c *deepseekv3.Config) { c.DenseLayers = -1 }, "graph: deepseekv3: DenseLayers is -1: want 0 or more"},
		{func(c *deepseekv3.Config) { c.DenseLayers = 7 }, "graph: deepseekv3: 7 DenseLayers of 6 Layers: want no more than all"},
		{func(c *deepseekv3.Config) { c.Hidden = 0 }, "graph: deepseekv3: Hidden is 0: want 1 or more for the 1 dense layers"},
		{func(c *deepseekv3.Config) { c.ExpertHidden = 0 }, "graph: deepseekv3: 8 Experts with an ExpertHidden of 0: want 1 or more of both"},
		{func(c *deepseekv3.Config) { c.NormEps = 0 }, "graph: deepseekv3: NormEps is 0: want more than 0"},
		{func(c *deepseekv3.Config) { c.LoadBalance = -1 }, "graph: deepseekv3: LoadBalance is -1: want 0 or more"},
		{func(c *deepseekv3.Config) { c.DType = device.Int32 }, "graph: deepseekv3: DType is int32: want float32 or float64"},
		{func(c *deepseekv3.Config) { c.TopK = 9 }, "graph: layers.1.moe.router: router: top 9 of 8 experts: want 1 ≤ top k ≤ experts"},
		{func(c *deepseekv3.Config) { c.Groups = 3 }, "graph: layers.1.moe.router: router: 8 experts in 3 groups"},
		{func(c *deepseekv3.Config) { c.RoPEDims = 63 }, "graph: layers.0.attention: mla: widths 128 without and 63 with position"},
		{func(c *deepseekv3.Config) { c.RoPE.Scaling = attention.Llama3Scaling() }, "graph: layers.0.attention: rope: scaling"},
	} {
		c, err := deepseekv3.Flavor("debugmodel")
		if err != nil {
			t.Fatal(err)
		}
		x.change(&c)
		b := graph.New(graph.NewStore(modeltest.NewDevice(t, 1), graph.StoreOptions{}))
		in := modeltest.NewInputs(b, 1, 8, device.Float32)
		deepseekv3.Build(b, c, deepseekv3.Inputs{Tokens: in.Tokens, Labels: in.Labels, Scale: in.Scale}, deepseekv3.Options{})
		if _, err := b.Graph(); err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("error %v, want %s…", err, x.want)
		}
	}
	if _, err := deepseekv3.Flavor("17B"); err == nil || err.Error() != `deepseekv3: no flavor "17B": have 16B, 236B, 671B, debugmodel, quickstart` {
		t.Errorf("unknown flavor: %v", err)
	}
}

func Example() {
	c, err := deepseekv3.Flavor("671B")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Parameters(), "parameters, of which a token meets", c.ActiveParameters())
	// Output:
	// 671026404352 parameters, of which a token meets 37552282624
}
