package deepseekv3_test

import (
	"testing"

	"github.com/lethe-go/lethe/model/deepseekv3"
)

// The figures of torchtitan's models: totals, parameters that a token meets, and
// operations for each token in sequences of a length.
func TestFlavors(t *testing.T) {
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
		m, err := deepseekv3.Flavor(c.flavor)
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
	}
}
