package checkpoint_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// The block of torchtitan's own test of selective checkpointing: gate
// (512×512), wq (512×512), output (512×1024), sum. torchtitan itself needs 8, 9,
// 10, 11, 12 units of 2·512³ for the backward pass and keeps 2, 3, 2, 1, 0 MiB:
// it also saves and reruns what no backward op reads, and its forced set means
// shapes, so that forcing the gate hits wq too.
var oracle = []struct {
	name    string
	policy  checkpoint.Policy
	options checkpoint.Options

	backwardUnits float64
	reruns        string
	savedMiB      int64
}{
	{"none", checkpoint.None(), checkpoint.Options{}, 8, "", 2},
	{"selective", checkpoint.Selective(), checkpoint.Options{}, 9, "wq", 1},
	{"force gate", checkpoint.Selective(), checkpoint.Options{ForceRecompute: []string{"moe.router.gate"}}, 9, "moe.router.gate", 1},
	{"force output", checkpoint.Selective(), checkpoint.Options{ForceRecompute: []string{"output"}}, 9, "wq", 1},
	{"full", checkpoint.Full(), checkpoint.Options{}, 10, "moe.router.gate wq", 0},
}

const unit = 2 * 512 * 512 * 512

func oracleGraph(t *testing.T, policy checkpoint.Policy, workers int) *graph.Graph {
	b := graph.New(newStore(t, workers))
	x := b.Input("x", device.Float32, 512, 512)
	checkpoint.Region(b, policy, func() {
		h := nn.Linear(b.Scope("moe.router.gate"), x, 512, nil)
		h = nn.Linear(b.Scope("wq"), h, 512, nil)
		h = nn.Linear(b.Scope("output"), h, 1024, nil)
		b.AddLoss("loss", graph.Sum(h))
	})
	wrt := append(b.Parameters(), x)
	for _, grad := range b.Backward(wrt...) {
		b.Output(wrt[0].Name(), grad)
		wrt = wrt[1:]
	}
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestOracleReport(t *testing.T) {
	for _, o := range oracle {
		t.Run(o.name, func(t *testing.T) {
			g := oracleGraph(t, o.policy, 1)
			r := checkpoint.Explain(g, resolve(t, g, o.options))
			var units float64
			for _, n := range g.Nodes {
				if n.Phase == graph.Backward && n.Kind == "matmul" {
					units += n.Cost.ExecutedFLOPs / unit
				}
			}
			units += r.RerunFLOPs() / unit
			got := strings.ReplaceAll(strings.Join(r.With(checkpoint.Rerun), " "), ".matmul:0", "")
			if got != o.reruns || r.SavedBytes() != o.savedMiB<<20 || units != o.backwardUnits {
				t.Errorf("reruns %q, %d bytes saved, %v units; want %q, %d MiB, %v\n%v",
					got, r.SavedBytes(), units, o.reruns, o.savedMiB, o.backwardUnits, r)
			}
		})
	}
}

func TestOracleProgram(t *testing.T) {
	var want [][]float32
	for _, o := range oracle {
		t.Run(o.name, func(t *testing.T) {
			g := oracleGraph(t, o.policy, 2)
			p, err := graph.Compile(g, graph.CompileOptions{Plan: resolve(t, g, o.options)})
			if err != nil {
				t.Fatal(err)
			}
			matmuls := p.Cost(func(s *graph.Step) bool { return s.Backward() && s.Node.Kind == "matmul" }).ExecutedFLOPs
			saved := p.Bound().Saved
			var names []string
			for _, n := range p.Reruns() {
				names = append(names, n.Scope)
			}
			slices.Sort(names)
			got := strings.Join(names, " ")
			if got != o.reruns || saved != o.savedMiB<<20 || matmuls != o.backwardUnits*unit {
				t.Errorf("reruns %q, %d bytes saved, %v units; want %q, %d MiB, %v",
					got, saved, matmuls/unit, o.reruns, o.savedMiB, o.backwardUnits)
			}
			results := run(t, p)
			if want == nil {
				want = results
			}
			for i, r := range results {
				if !slices.Equal(r, want[i]) {
					t.Errorf("%s differs from that without checkpointing", g.Outputs[i].Name)
				}
			}
		})
	}
}

// run returns the outputs of one step on a fixed input.
func run(t *testing.T, p *graph.Program) [][]float32 {
	t.Helper()
	m, err := graph.NewMachine(p)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x := make([]float32, 512*512)
	for i := range x {
		x[i] = float32(i%1009)/512 - 1
	}
	if err := graph.Feed(m, "x", x); err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background(), graph.RunOptions{Step: 1}); err != nil {
		t.Fatal(err)
	}
	var out [][]float32
	for _, o := range p.Graph.Outputs {
		values := slices.Clone(device.Elements[float32](m.Output(o.Name)))
		if slices.Max(values) == slices.Min(values) && len(values) > 1 {
			t.Errorf("%s is constant: the step computed nothing", o.Name)
		}
		out = append(out, values)
	}
	return out
}
