package deepseekv3

import (
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

// The figures of torchtitan's models: totals, parameters that a token meets, and
// operations for each token in sequences of a length.
func TestFlavors(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct {
		flavor        string
		total, active int64
		seq           int
		flops         float64
	}{
		{"debugmodel", 33_014_016, 28_098_816, 2048, 542_934_528},
		{"16B", 15_706_484_224, 2_661_150_208, 4096, 18_105_996_288},
		{"236B", 235_741_434_880, 21_375_800_320, 4096, 185_507_051_520},
		{"671B", 671_026_404_352, 37_552_282_624, 4096, 281_158_232_064},
	} {
		m, err := Flavor(c.flavor)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Parameters(); got != c.total {
			t.Errorf("%s: %d parameters, want %d", c.flavor, got, c.total)
		}
		if got := m.ActiveParameters(); got != c.active {
			t.Errorf("%s: %d active parameters, want %d", c.flavor, got, c.active)
		}
		if got := m.FLOPsPerToken(c.seq); got != c.flops {
			t.Errorf("%s: %.0f FLOPs a token, want %.0f", c.flavor, got, c.flops)
		}
		checkDeclared(t, d, c.flavor, m)
	}
}

// checkDeclared builds the model with its gradients, which allocates nothing, and counts
// what it declares.
func checkDeclared(t *testing.T, d device.Device, flavor string, m Config) {
	store := graph.NewStore(d, graph.StoreOptions{})
	b := graph.New(store)
	in := Inputs{Tokens: b.Input("tokens", device.Int32, 1, 4096), Labels: b.Input("labels", device.Int32, 1, 4096), Scale: b.Input("scale", device.Float32)}
	Build(b, m, in, Options{Training: true})
	for i, g := range b.Backward(b.Parameters()...) {
		p := b.Parameters()[i]
		b.Assign(b.Scratch("gradient."+p.Name(), device.Float32, p.Shape()...), g)
	}
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := graph.Compile(g, graph.CompileOptions{}); err != nil {
		t.Fatal(err)
	}
	var declared int64
	for _, v := range store.Variables() {
		if v.Kind == graph.Parameter {
			declared += int64(v.Spec.Len())
		}
	}
	if declared != m.Parameters() {
		t.Errorf("%s: the graph declares %d parameters, want %d", flavor, declared, m.Parameters())
	}
}
