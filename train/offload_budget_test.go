package train

import (
	"context"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
)

// Where the planner moves values to a disk, steps are those of mode "none", bit for bit, and
// every predicted peak is the measured one. A disk that is not worth it is left alone.
func TestBudgetOffloadsWhereItPays(t *testing.T) {
	if testing.Short() {
		t.Skip("what the ring is small beside takes long to compute")
	}
	c := budgetConfig(t)
	c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 256, 512 // the ring is small beside what is saved
	slow := checkpoint.Roofline{FLOPs: 1e6, Bandwidth: 1e12, LinkBandwidth: 1e6, LinkLatency: 10_000, Launch: 1_000}
	o := Options{Model: tinyLlama(), Costs: slow}
	c.ActivationCheckpoint.Mode = "none"
	want, all := losses(t, c, o)
	without, most := smallest(t, c, o), all.PredictedBytes()
	c.ActivationCheckpoint.Offload = StringList{"*"}
	c.ActivationCheckpoint.OffloadBandwidth = 1e12
	if least := smallest(t, c, o); least > without {
		t.Errorf("the smallest plan with a disk takes %d bytes, %d without", least, without)
	}
	for _, bytes := range []int64{(without + most) / 2, most} {
		c := within(c, bytes)
		got, r := losses(t, c, o)
		if !slices.Equal(got, want) {
			t.Errorf("%d bytes: steps %v, want %v", bytes, got, want)
		}
		u, times := r.ranks[0].programs.usage(2), r.ranks[0].programs.times(2, slow)
		if r.PredictedBytes() > bytes || times.bound > times.reruns+times.waits {
			t.Errorf("%d bytes: %+v, %+v, %d bytes held", bytes, u, times, r.PredictedBytes())
		}
		// What fits without a disk holds no buffers for one.
		if moves := bytes < most; (u.offloadedBytes > 0) != moves || (r.ringBytes() > 0) != moves || !moves && times.reruns+times.waits > 0 {
			t.Errorf("%d bytes: %+v, %+v, a ring of %d bytes", bytes, u, times, r.ringBytes())
		}
		all, err := MeasurePeaks(context.Background(), c, budgetMode, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Predicted != m.Peak || m.Differs != "" || !m.SameLoss {
				t.Errorf("%d bytes: %+v", bytes, m)
			}
		}
	}
	c.ActivationCheckpoint.OffloadBandwidth = 1e3
	c = within(c, without)
	got, r := losses(t, c, o)
	if u := r.ranks[0].programs.usage(2); u.offloadedBytes != 0 || r.ringBytes() != 0 || !slices.Equal(got, want) {
		t.Errorf("a disk of 1 kB/s holds %d bytes, with a ring of %d; steps %v, want %v", u.offloadedBytes, r.ringBytes(), got, want)
	}
}

// A report's budgets fall from what keeping everything takes to the least, which no row
// undercuts, with a disk too.
func TestReportWithDisk(t *testing.T) {
	c := budgetConfig(t)
	c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 256, 512
	keeps, err := PlanReportFor(c, Options{Model: tinyLlama()})
	if err != nil {
		t.Fatal(err)
	}
	c.ActivationCheckpoint.Offload = StringList{"*"}
	r, err := PlanReportFor(c, Options{Model: tinyLlama()})
	if err != nil {
		t.Fatal(err)
	}
	last := r.Rows[len(r.Rows)-1]
	before := keeps.Rows[0].TotalBytes
	for _, x := range r.Rows {
		if x.Within != nil {
			if x.BudgetBytes > before || x.TotalBytes > x.BudgetBytes {
				t.Errorf("budget %d, %d bytes held; the one before is %d", x.BudgetBytes, x.TotalBytes, before)
			}
			before = x.BudgetBytes
		}
		if x.TotalBytes < last.BudgetBytes {
			t.Errorf("%s holds %d bytes, %d is said to be the least", x.Mode, x.TotalBytes, last.BudgetBytes)
		}
	}
	if r.Bounds[len(r.Bounds)-1].BudgetBytes != keeps.Rows[0].TotalBytes {
		t.Errorf("bounds up to %d bytes, keeping everything takes %d", r.Bounds[len(r.Bounds)-1].BudgetBytes, keeps.Rows[0].TotalBytes)
	}
}
