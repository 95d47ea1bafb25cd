package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// Names are text wherever they stand, in HTML, attributes and JSON.
func TestReportHostileNames(t *testing.T) {
	text := report(t, syntheticRun(t, 20, 1, `</script><script>alert(1)</script>" onload="alert(2)`))
	if n := strings.Count(text, "<script"); n != strings.Count(text, "</script>") || n != 1+strings.Count(text, `<script type="application/json">`) {
		t.Errorf("%d scripts", n)
	}
	if strings.Contains(text, `" onload="`) {
		t.Error("a name ends an attribute")
	}
	if !strings.Contains(text, "&lt;script&gt;alert(1)") {
		t.Error("the name is not shown")
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
	for _, want := range []string{"selective", "by region", "layers.0", "saved for backward", ".go:", "decided by"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q on the page", want)
		}
	}
	want := formatBytes(r.Program.Bound().Peak)
	if l := timeline(r.Program); formatBytes(int64(slices.Max(l.Series[0].Y))) != want {
		t.Errorf("the timeline rises to %v, want %s", slices.Max(l.Series[0].Y), want)
	}
	if strings.Contains(b.String(), "ZgotmplZ") || b.Len() > 2<<20 {
		t.Errorf("%d bytes", b.Len())
	}
}
