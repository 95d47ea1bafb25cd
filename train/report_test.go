package train

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
)

// syntheticRun is a dump folder with so many logged steps and layers of experts, one of
// which has a name.
func syntheticRun(t *testing.T, steps, layers int, name string) string {
	t.Helper()
	folder := t.TempDir()
	c := DefaultConfig()
	c.Training.Dataset, c.Training.Steps, c.Metrics.LogFreq = StringList{"moby_dick"}, steps, 1
	text, err := c.TOML()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, ConfigFile), text, 0o666); err != nil {
		t.Fatal(err)
	}
	w, err := OpenMetrics(filepath.Join(folder, MetricsFile), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for step := 1; step <= steps; step++ {
		x := float64(step)
		m := Metrics{Step: step, Loss: Float(2 + 4*math.Exp(-x/300)), GradNorm: Float(1 + math.Sin(x)/2), MemoryBytes: 50 << 20, TPS: 30000, MFU: 20, Seconds: 0.03}
		if step == 7 {
			m.Loss, m.GradNorm = Float(math.NaN()), Float(math.Inf(1))
		}
		for i := range layers {
			m.ExpertLoad = append(m.ExpertLoad, ExpertLoad{Layer: fmt.Sprintf("layers.%d.%s", i, name), MaxViolation: Float(1 / (1 + x/100)), Entropy: 0.9})
		}
		if err := w.Write(m); err != nil {
			t.Fatal(err)
		}
		if step%500 == 0 {
			if err := w.WriteValidation(ValidationMetrics{Step: step, Loss: 3, Predictions: 10}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return folder
}

func report(t *testing.T, folders ...string) string {
	t.Helper()
	var b strings.Builder
	if err := WriteReport(&b, folders...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReport(t *testing.T) {
	a, b := syntheticRun(t, 2000, 27, "moe"), syntheticRun(t, 2000, 27, "moe")
	text := report(t, a, b)
	if len(text) > 2<<20 {
		t.Errorf("two runs of 2,000 steps take %d bytes, more than 2 MiB", len(text))
	}
	for _, want := range []string{"<h1>Lethe runs</h1>", "Loss", "Gradient norm", "Learning rate", "Throughput", "MFU", "Memory",
		"Expert load, ", "held out", "step 2000 of 2000", "layers.26.moe"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	for _, never := range []string{"http://", "https://", "src=", "ZgotmplZ", "NaN\""} {
		if strings.Contains(text, never) {
			t.Errorf("%q on the page", never)
		}
	}
}

// A run that has written no line yet has a page as well.
func TestReportOfNothing(t *testing.T) {
	if text := report(t, syntheticRun(t, 1, 0, "")); !strings.Contains(text, "step 1 of 1") {
		t.Error(text)
	}
	folder := syntheticRun(t, 1, 0, "")
	if err := os.WriteFile(filepath.Join(folder, MetricsFile), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if text := report(t, folder); !strings.Contains(text, "step 0 of 1") {
		t.Error(text)
	}
}

// checkTimeline checks that the areas of a timeline add up to the bytes alive, step by step.
func checkTimeline(t *testing.T, p *graph.Program) {
	t.Helper()
	live := p.LiveBytes(nil)
	unit, _ := byteUnit(slices.Max(live))
	l := timelines(p)[0]
	for i, want := range live {
		sum := 0.0
		for _, s := range l.Series {
			sum += s.Y[i]
		}
		if math.Abs(sum*unit-float64(want)) > 1e-6*unit {
			t.Fatalf("step %d: %v bytes, want %d", i, sum*unit, want)
		}
	}
	if beside := timelines(p)[1]; slices.ContainsFunc(beside.Series[0].Y, func(v float64) bool { return v != 0 }) || !slices.ContainsFunc(l.Series[0].Y, func(v float64) bool { return v > 0 }) {
		t.Errorf("%s saves something, or %s nothing", beside.Title, l.Title)
	}
	for _, h := range memorySection(p).Heats {
		for i, want := range live {
			sum := 0.0
			for _, r := range h.Rows {
				sum += r.Values[i]
			}
			if sum != float64(want) {
				t.Fatalf("%s, step %d: %v bytes, want %d", h.Title, i, sum, want)
			}
		}
	}
	if at := l.Marks[0].X; !p.Steps[int(at)-1].Backward() || p.Steps[int(at)-2].Backward() {
		t.Errorf("backward does not begin at step %v", at)
	}
}

// The page of a plan names what holds the peak, and the parts of the peak add up to it.
func TestPlanPage(t *testing.T) {
	c := DefaultConfig()
	c.Training.Dataset, c.Training.SeqLen, c.Training.LocalBatchSize = StringList{"moby_dick"}, 32, 2
	c.Model = ModelConfig{Name: "deepseek_v3", Flavor: "quickstart"}
	r, err := PlanReportFor(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.WriteHTML(&b, c); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"selective", "By region", "layers.0", "saved for backward", ".go:", "decided by"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q on the page", want)
		}
	}
	checkTimeline(t, r.Program)
	if strings.Contains(b.String(), "ZgotmplZ") || b.Len() > 2<<20 {
		t.Errorf("%d bytes", b.Len())
	}
}

// Layers about which all was decided alike are told once, others apart.
func TestDecisionTable(t *testing.T) {
	c := DefaultConfig()
	c.Training.Dataset, c.Training.SeqLen, c.Training.LocalBatchSize = StringList{"moby_dick"}, 32, 2
	c.ActivationCheckpoint.Save = StringList{"attention"}
	r, err := PlanReportFor(c, Options{Model: tinyLlama()})
	if err != nil {
		t.Fatal(err)
	}
	values, regions := 0, map[string]bool{}
	for _, row := range decisionTable(r.Explanation).Rows {
		n := 1
		if row[0] == "layers.0 to layers.1, 2 alike, each" {
			n = 2
		}
		regions[row[0]] = true
		of := 0
		fmt.Sscan(row[2], &of)
		values += n * of
	}
	want := 0
	for _, l := range r.Explanation.Lines {
		if l.Fate != checkpoint.Shared {
			want++
		}
	}
	if values != want || len(regions) != 2 {
		t.Errorf("%d values in %v, want %d outside of regions and in two layers alike", values, regions, want)
	}
}

// What ranks send each other is on the page of a plan with ranks, and on no other.
func TestTrafficTable(t *testing.T) {
	c, model := profiledConfig(t)
	r, err := PlanReportFor(c, Options{Model: model})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, row := range trafficTable(r.Program).Rows {
		rows[row[0]+" "+row[1]] = row
	}
	// Two layers of experts: tokens out and back in both directions, in the forward pass
	// their counts too; the most are the tokens of two ranks, 2 × 32 for 2 experts each, of
	// 32 float32 numbers.
	for pass, calls := range map[string]string{"forward": "6", "backward": "4"} {
		row := rows["all_to_all "+pass]
		if row == nil || row[2] != calls || row[4] != formatBytes(2*2*32*2*32*4) {
			t.Errorf("%s: %v", pass, row)
		}
	}
	c.Parallelism.ExpertParallelDegree = 1
	if r, err = PlanReportFor(c, Options{Model: model}); err != nil {
		t.Fatal(err)
	}
	if rows := trafficTable(r.Program).Rows; len(rows) != 0 {
		t.Errorf("a rank alone sends %v", rows)
	}
}

// The timeline of a profile has every slice of its trace, and the newest trace is shown.
func TestReportShowsTheLastProfile(t *testing.T) {
	c, model := profiledConfig(t)
	c.Profiling.EnableProfiling, c.Profiling.ProfileFreq = true, 1
	runConfig(t, c, Options{Model: model})
	text := report(t, c.Job.DumpFolder)
	for _, want := range []string{"Timeline of step 000003", "rank 0, compute", "rank 1, collective expert", "cpu workers, worker 0", "Operations by time", "grouped_matmul"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	if strings.Contains(text, "step 000002") {
		t.Error("an older profile is shown")
	}
	if err := os.WriteFile(filepath.Join(c.TracesPath(), "step-000004.trace.json"), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(io.Discard, c.Job.DumpFolder); err == nil || !strings.Contains(err.Error(), "step-000004.trace.json") || !strings.Contains(err.Error(), "move the file away") {
		t.Errorf("a torn trace: %v", err)
	}
}
