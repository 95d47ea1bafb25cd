package llama3_test

import (
	"strings"
	"testing"

	"github.com/lethe-go/lethe/model/llama3"
)

func flavor(t *testing.T, name string) llama3.Config {
	t.Helper()
	c, err := llama3.Flavor(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFlavors(t *testing.T) {
	// Totals of the released weights; the debugmodel's is torchtitan's.
	want := map[string]int64{
		"debugmodel": 6_163_712, "quickstart": 853_632,
		"1B": 1_235_814_400, "3B": 3_212_749_824, "8B": 8_030_261_248,
		"70B": 70_553_706_496, "405B": 405_853_388_800,
	}
	for _, name := range llama3.Flavors() {
		c := flavor(t, name)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := c.Parameters(); n != want[name] {
			t.Errorf("%s: %d parameters, want %d", name, n, want[name])
		}
	}
	if len(want) != len(llama3.Flavors()) {
		t.Errorf("flavors %v", llama3.Flavors())
	}
	_, err := llama3.Flavor("9B")
	if err == nil || !strings.Contains(err.Error(), `llama3: no flavor "9B": have 1B, 3B, 405B`) {
		t.Errorf("unknown flavor: %v", err)
	}
}

func TestFLOPsPerToken(t *testing.T) {
	for _, x := range []struct {
		flavor string
		seq    int
		want   float64
	}{{"debugmodel", 2048, 71_585_280}, {"8B", 8192, 57_914_449_920}} {
		if got := flavor(t, x.flavor).FLOPsPerToken(x.seq); got != x.want {
			t.Errorf("%s at %d: %.0f FLOPs a token, want %.0f", x.flavor, x.seq, got, x.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, x := range []struct {
		change func(c *llama3.Config)
		want   string
	}{
		{func(c *llama3.Config) { c.Dim = 0 }, "llama3: Dim is 0: want 1 or more"},
		{func(c *llama3.Config) { c.Layers = -1 }, "llama3: Layers is -1: want 1 or more"},
		{func(c *llama3.Config) { c.KVHeads = 3 }, "llama3: 16 Heads cannot share 3 KVHeads: want a multiple"},
		{func(c *llama3.Config) { c.HeadDim = 15 }, "llama3: HeadDim is 15: RoPE turns pairs, want an even number"},
		{func(c *llama3.Config) { c.NormEps = -1 }, "llama3: NormEps is -1: want more than 0"},
		{func(c *llama3.Config) { c.Dropout = 1 }, "llama3: Dropout is 1: want 0 or more and less than 1"},
	} {
		c := flavor(t, "debugmodel")
		x.change(&c)
		if err := c.Validate(); err == nil || err.Error() != x.want {
			t.Errorf("%v, want %s", err, x.want)
		}
	}
}
