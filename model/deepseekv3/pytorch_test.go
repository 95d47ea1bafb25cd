package deepseekv3_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/internal/modeltest"
)

// Bounds on what may differ from PyTorch, as a share of a tensor's norm or of a
// loss. Float64 differs by the order of sums; float32 is held against PyTorch's
// float64, from which PyTorch's own float32 is up to 8e-7 away.
var tolerances = map[device.DType]float64{device.Float64: 1e-11, device.Float32: 3e-6}

// TestAgainstPyTorch compares parameters, loss, gradients and the tokens of every
// expert: debugmodel is torchtitan's, tiny has latent queries, sigmoid scores that are
// normalized and scaled, groups of experts and biases.
func TestAgainstPyTorch(t *testing.T) {
	for _, name := range []string{"debugmodel", "tiny"} {
		g := modeltest.Read[goldenConfig](t, name)
		if !(g.Margin > 1e-3) {
			t.Errorf("%s: choices of experts have a margin of %g: too narrow to compare", name, g.Margin)
		}
		for _, dtype := range []device.DType{device.Float64, device.Float32} {
			t.Run(fmt.Sprintf("%s/%v", name, dtype), func(t *testing.T) {
				c := g.Config.model(t)
				s := g.Setup(t, c.Vocab, dtype)
				s.Build, s.Prepare = build(c, dtype, deepseekv3.Options{Training: true}), g.Config.prepare(g.Seed)
				m := s.New(t)
				g.Check(t, m, dtype, tolerances[dtype])
				if have := loads(m, c); !reflect.DeepEqual(have, g.Loads) {
					t.Errorf("tokens of experts %v, PyTorch's are %v", have, g.Loads)
				}
			})
		}
	}
}

// TestGoldenIsTheDebugmodel: the golden compares the flavor, not a model like it.
func TestGoldenIsTheDebugmodel(t *testing.T) {
	c, err := deepseekv3.Flavor("debugmodel")
	if err != nil {
		t.Fatal(err)
	}
	if have := modeltest.Read[goldenConfig](t, "debugmodel").Config.model(t); have != c {
		t.Errorf("golden of %+v, the flavor is %+v", have, c)
	}
}
