package train_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/train"
)

func ExampleMetrics() {
	fmt.Println(train.Metrics{
		Step: 1, Loss: 7.62811, GradNorm: 1.842, MemoryBytes: 450971566, MemoryPct: 1.82,
		TPS: 3214.4, TFLOPS: 0.18, MFU: 43.12,
	})
	fmt.Println(train.Metrics{
		Step: 12345, Loss: 11.5, GradNorm: 123.25, MemoryBytes: 70 << 30, MemoryPct: 98.765,
		TPS: 1234567.8, TFLOPS: 1234.5678, MFU: train.Float(math.NaN()),
	})
	// Output:
	// step:  1  loss:  7.62811  grad_norm:  1.8420  memory:  0.42GiB(1.82%)  tps: 3,214  tflops: 0.18  mfu: 43.12%
	// step: 12345  loss: 11.50000  grad_norm: 123.2500  memory: 70.00GiB(98.77%)  tps: 1,234,568  tflops: 1,234.57  mfu: N/A
}

func TestMetricsLineNotFinite(t *testing.T) {
	inf := train.Float(math.Inf(-1))
	line := train.Metrics{Loss: train.Float(math.NaN()), GradNorm: -inf, TPS: inf, TFLOPS: -123}.String()
	for _, want := range []string{"loss:      NaN ", "grad_norm:    +Inf ", "tps: -Inf ", "tflops: -123.00 "} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %q", want, line)
		}
	}
}

func TestMetricsKeys(t *testing.T) {
	text, err := json.Marshal(train.Metrics{Step: 3, Loss: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"step":3,"loss":0.5,"grad_norm":0,"memory_bytes":0,"memory_pct":0,"tps":0,"tflops":0,"mfu":0,` +
		`"executed_tflops":0,"saved_bytes":0,"recomputed_flops":0,"host_syncs":0,` +
		`"host_syncs_by_pass":{"forward":0,"rerun":0,"backward":0,"update":0},"collectives":null,"exposed_seconds":0,"seconds":0}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestFloatRoundTrip(t *testing.T) {
	for _, f := range []float64{0, math.Copysign(0, -1), 1, 0.1, 1e300, 5e-324, math.MaxFloat64, float64(float32(7.62811)),
		math.Inf(1), math.Inf(-1), math.NaN(), 1e21, 1e-7} {
		roundTripFloat(t, f)
	}
	var f train.Float
	for _, bad := range []string{`"nan"`, `"1"`, `null`, `[]`, `true`, `1e999`} {
		if err := json.Unmarshal([]byte(bad), &f); err == nil && bad != "null" {
			t.Errorf("%s is read as %v", bad, f)
		}
	}
}

func roundTripFloat(t *testing.T, f float64) {
	t.Helper()
	text, err := json.Marshal(train.Float(f))
	if err != nil {
		t.Fatal(err)
	}
	var back train.Float
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if math.Float64bits(f) != math.Float64bits(float64(back)) && !math.IsNaN(f) || math.IsNaN(f) != math.IsNaN(float64(back)) {
		t.Errorf("%v becomes %s becomes %v", f, text, back)
	}
}

func FuzzFloatRoundTrip(f *testing.F) {
	f.Add(uint64(0x7ff8000000000001))
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, bits uint64) { roundTripFloat(t, math.Float64frombits(bits)) })
}

func writeMetrics(t *testing.T, path string, resume int, steps ...int) {
	t.Helper()
	w, err := train.OpenMetrics(path, resume)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, step := range steps {
		if err := w.Write(train.Metrics{Step: step, Loss: train.Float(step) / 3}); err != nil {
			t.Fatal(err)
		}
	}
}

func metricsSteps(t *testing.T, path string) []int {
	t.Helper()
	list, err := train.ReadMetrics(path)
	if err != nil {
		t.Fatal(err)
	}
	var steps []int
	for _, m := range list {
		if m.Loss != train.Float(m.Step)/3 {
			t.Errorf("step %d has loss %v", m.Step, m.Loss)
		}
		steps = append(steps, m.Step)
	}
	return steps
}

func TestMetricsResume(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	writeMetrics(t, path, 0, 1, 10, 20, 30)
	full, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeMetrics(t, path, 15, 20)
	if got := metricsSteps(t, path); !reflect.DeepEqual(got, []int{1, 10, 20}) {
		t.Errorf("resumed after 15: %v", got)
	}
	writeMetrics(t, path, 20, 30)
	if got, _ := os.ReadFile(path); string(got) != string(full) {
		t.Errorf("resumed file differs:\n%s\n%s", got, full)
	}
	// Torn anywhere, it resumes to the same bytes.
	for cut := range full {
		if err := os.WriteFile(path, full[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := train.ReadMetrics(path); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		done := strings.Count(string(full[:cut]), "\n")
		steps := []int{1, 10, 20, 30}
		last := 0
		if done > 0 {
			last = steps[done-1]
		}
		writeMetrics(t, path, last, steps[done:]...)
		if got, _ := os.ReadFile(path); string(got) != string(full) {
			t.Fatalf("cut at %d: %s", cut, got)
		}
	}
	writeMetrics(t, path, 0)
	if got := metricsSteps(t, path); got != nil {
		t.Errorf("a new run keeps %v", got)
	}
}

// Lines about held-out data stand among the others and resume with them.
func TestMetricsValidations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	w, err := train.OpenMetrics(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	write := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first := train.ValidationMetrics{Step: 15, Loss: 2.5, Predictions: 7}
	write(w.Write(train.Metrics{Step: 10, Loss: 10. / 3}))
	write(w.WriteValidation(first))
	write(w.Write(train.Metrics{Step: 20, Loss: 20. / 3}))
	write(w.WriteValidation(train.ValidationMetrics{Step: 20, Loss: 1}))
	if w.WriteValidation(train.ValidationMetrics{Step: 19}) == nil || w.Write(train.Metrics{Step: 20}) == nil {
		t.Error("a line went back in time")
	}
	w.Close()
	if got := metricsSteps(t, path); !reflect.DeepEqual(got, []int{10, 20}) {
		t.Errorf("steps %v", got)
	}
	writeMetrics(t, path, 15, 16)
	if got := metricsSteps(t, path); !reflect.DeepEqual(got, []int{10, 16}) {
		t.Errorf("steps %v after a resume at 15", got)
	}
	if got, err := train.ReadValidations(path); err != nil || !reflect.DeepEqual(got, []train.ValidationMetrics{first}) {
		t.Errorf("%v: %v after a resume at 15", err, got)
	}
	// A measurement that is made again, at the end of a run that was finished, is there.
	if w, err = train.OpenMetrics(path, 15); err != nil {
		t.Fatal(err)
	}
	write(w.WriteValidation(first))
	write(w.Close())
	if got, err := train.ReadValidations(path); err != nil || len(got) != 1 {
		t.Errorf("%v: %v", err, got)
	}
}

func TestMetricsErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	for content, want := range map[string]string{
		"{\"step\":1}\n{\"step\":x}\n":                       ":2: invalid character",
		"{\"step\":1}\n\n{\"step\":2}\n":                     ":2: EOF",
		"{\"step\":1} {}\n":                                  ":1: goes on after its end",
		"{\"step\":2}\n{\"step\":2}\n":                       ":2: step 2 after step 2",
		"{\"step\":1,\"loss\":\"nan\"}\n":                    `:1: not a number: "nan"`,
		"{\"step\":1}\n{\"step\":0}\n{\"st\n\n":              ":2: step 0 after step 1",
		"{\"step\":2}\n{\"step\":1,\"validation_loss\":1}\n": ":2: validation at step 1 after step 2",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := train.ReadMetrics(path); err == nil || !strings.Contains(err.Error(), path+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", content, err)
		}
		if _, err := train.OpenMetrics(path, 9); err == nil {
			t.Errorf("%q: opened", content)
		}
		if after, _ := os.ReadFile(path); string(after) != content {
			t.Errorf("%q: an error changed the file to %q", content, after)
		}
	}
	w, err := train.OpenMetrics(filepath.Join(t.TempDir(), "m"), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Write(train.Metrics{Step: 4}); err != nil {
		t.Error(err)
	}
	if err := w.Sync(); err != nil {
		t.Error(err)
	}
	if err := w.Write(train.Metrics{Step: 4}); err == nil {
		t.Error("a step was written twice")
	}
	if _, err := train.OpenMetrics(filepath.Join(path, "x"), 0); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}
