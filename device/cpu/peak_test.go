package cpu

import "testing"

// TestPeakFLOPs demands no more than holds on any machine: a rate of some order of
// magnitude at every level.
func TestPeakFLOPs(t *testing.T) {
	for _, l := range gemmTestLevels(t) {
		d, err := New(Options{Workers: 2, Level: l})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		flops := d.PeakFLOPs()
		t.Logf("%s: %.1f GFLOP/s", l, flops/1e9)
		if !(flops > 1e8) || flops > 1e13 {
			t.Errorf("%s: %g FLOP/s", l, flops)
		}
	}
}
