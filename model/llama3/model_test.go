package llama3_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/devicetest"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/internal/modeltest"
	"github.com/lethe-go/lethe/model/llama3"
)

// TestFlavorsBuild builds and plans a training step of every flavor. Nothing of
// the model may be allocated: the largest would take three terabytes.
func TestFlavorsBuild(t *testing.T) {
	for _, name := range llama3.Flavors() {
		t.Run(name, func(t *testing.T) {
			const batch, seq = 1, 1024
			c := flavor(t, name)
			store := graph.NewStore(modeltest.NewDevice(t, 2), graph.StoreOptions{})
			b := graph.New(store)
			build(c, nil, device.Float32)(b, modeltest.NewInputs(b, batch, seq, device.Float32))
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

// TestEvaluation: a program without Backward on the same Store gives the same loss.
func TestEvaluation(t *testing.T) {
	s := newPolicySetup(device.Float32, 0)
	m := s.model(t)
	want := m.Pass(t, 1)
	e := s.Evaluation(t, m)
	if have := e.Pass(t, 1); have != want {
		t.Errorf("loss %v, in training it is %v", have, want)
	}
	if e, m := e.Program().Bound().Peak, m.Program().Bound().Peak; e >= m {
		t.Errorf("peak of %d bytes, in training it is %d", e, m)
	}
}

// TestTiedEmbedding: the gradient of a tied table is the sum of the gradients that
// the embedding and the output matrix have when they are two equal parameters.
func TestTiedEmbedding(t *testing.T) {
	s := newPolicySetup(device.Float64, 0)
	two := s.model(t)
	devicetest.SetFloats(two.Store.Variable("output.weight").Tensor(), two.Parameter("tok_embeddings.weight"))
	s.config.TieEmbedding = true
	tied := s.model(t)
	if a, b := two.Pass(t, 1), tied.Pass(t, 1); !(modeltest.Norm([]float64{a - b}) <= 1e-13*a) {
		t.Fatalf("losses %v and %v", a, b)
	}
	if tied.Store.Variable("output.weight") != nil {
		t.Error("a tied model has an output.weight")
	}
	e, o, sum := two.Gradient("tok_embeddings.weight"), two.Gradient("output.weight"), tied.Gradient("tok_embeddings.weight")
	size := modeltest.Norm(sum)
	for i := range sum {
		sum[i] -= e[i] + o[i]
	}
	if d := modeltest.Norm(sum); !(d <= 1e-13*size) {
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
		b := graph.New(graph.NewStore(modeltest.NewDevice(t, 1), graph.StoreOptions{}))
		build(c, nil, device.Float32)(b, modeltest.NewInputs(b, 1, 8, device.Float32))
		modeltest.Differentiate(b)
		if _, err := b.Graph(); err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("error %v, want %s…", err, x.want)
		}
	}
}

// TestPositionBeyondTable: a document longer than MaxPositions fails the run.
func TestPositionBeyondTable(t *testing.T) {
	s := newPolicySetup(device.Float32, 0)
	s.config.RoPE.MaxPositions = 10
	m := s.model(t)
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
