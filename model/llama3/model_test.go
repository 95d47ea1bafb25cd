package llama3_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
)

// TestFlavorsBuild builds and plans a training step of every flavor. Nothing of
// the model may be allocated: the largest would take three terabytes.
func TestFlavorsBuild(t *testing.T) {
	for _, name := range llama3.Flavors() {
		t.Run(name, func(t *testing.T) {
			const batch, seq = 1, 1024
			c := flavor(t, name)
			store := graph.NewStore(newDevice(t, 2), graph.StoreOptions{})
			b := graph.New(store)
			buildTraining(b, c, batch, seq, nil)
			g, err := b.Graph()
			if err != nil {
				t.Fatal(err)
			}
			program, err := graph.Compile(g, graph.CompileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var parameters, norms int64
			for _, v := range store.Variables() {
				if v.Kind != graph.Parameter {
					continue
				}
				parameters += int64(v.Spec.Len())
				if strings.HasSuffix(v.Name, "norm.weight") {
					norms += int64(v.Spec.Len())
				}
				if !v.Tensor().IsZero() {
					t.Errorf("%s is allocated", v.Name)
				}
			}
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

// TestEvaluation: a program without Backward on the same Store gives the same loss.
func TestEvaluation(t *testing.T) {
	s := policySetup(device.Float32, 0)
	m := s.build(t)
	want := m.run(t, 1)
	b := graph.New(m.store)
	buildLoss(b, s.config, s.batch.Rows, s.batch.SeqLen, nil)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	program, err := graph.Compile(g, graph.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	machine, err := graph.NewMachine(program)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	e := &model{Machine: machine}
	s.feed(t, e)
	if have := e.run(t, 1); have != want {
		t.Errorf("loss %v, in training it is %v", have, want)
	}
	if e, m := program.Bound().Peak, m.Program().Bound().Peak; e >= m {
		t.Errorf("peak of %d bytes, in training it is %d", e, m)
	}
}

// TestTiedEmbedding: the gradient of a tied table is the sum of the gradients that
// the embedding and the output matrix have when they are two equal parameters.
func TestTiedEmbedding(t *testing.T) {
	s := policySetup(device.Float64, 0)
	two := s.build(t)
	setFloats(two.store.Variable("output.weight").Tensor(), two.parameter("tok_embeddings.weight"))
	s.config.TieEmbedding = true
	tied := s.build(t)
	if a, b := two.run(t, 1), tied.run(t, 1); !(norm([]float64{a - b}) <= 1e-13*a) {
		t.Fatalf("losses %v and %v", a, b)
	}
	if tied.store.Variable("output.weight") != nil {
		t.Error("a tied model has an output.weight")
	}
	e, o, sum := two.gradient("tok_embeddings.weight"), two.gradient("output.weight"), tied.gradient("tok_embeddings.weight")
	size := norm(sum)
	for i := range sum {
		sum[i] -= e[i] + o[i]
	}
	if d := norm(sum); !(d <= 1e-13*size) {
		t.Errorf("gradient differs by %.1e of its norm from the sum of both", d/size)
	}
}

func TestMistakes(t *testing.T) {
	for _, x := range []struct {
		change func(c *llama3.Config)
		want   string
	}{
		{func(c *llama3.Config) { c.KVHeads = 3 }, "graph: llama3: 16 Heads cannot share 3 KVHeads: want a multiple"},
		{func(c *llama3.Config) { c.RoPE.Scaling.HighFrequency = 1 }, "graph: layers.0.attention: rope: scaling"},
	} {
		c := flavor(t, "debugmodel")
		x.change(&c)
		b := graph.New(graph.NewStore(newDevice(t, 1), graph.StoreOptions{}))
		buildTraining(b, c, 1, 8, nil)
		if _, err := b.Graph(); err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("error %v, want %s…", err, x.want)
		}
	}
}

// TestPositionBeyondTable: a document longer than MaxPositions fails the run.
func TestPositionBeyondTable(t *testing.T) {
	s := policySetup(device.Float32, 0)
	s.config.RoPE.MaxPositions = 10
	m := s.build(t)
	err := m.Run(t.Context(), graph.RunOptions{Step: 1})
	if err == nil || !strings.Contains(err.Error(), "layers.0.attention") {
		t.Errorf("error %v, want one that names layers.0.attention", err)
	}
}

func Example() {
	c, err := llama3.Flavor("8B")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Parameters(), "parameters")
	fmt.Printf("%.0f FLOPs for each token of a sequence of 8192\n", c.FLOPsPerToken(8192))
	// Output:
	// 8030261248 parameters
	// 57914449920 FLOPs for each token of a sequence of 8192
}
