package train_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

// run writes a run of three steps, with states of steps 2 and 3.
func run(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	writeMetrics(t, filepath.Join(folder, train.MetricsFile), 0, 1, 2, 3)
	save(t, train.StateFolder{Path: filepath.Join(folder, "state")}, 2, 3)
	return folder
}

func compare(t *testing.T, a, b string) train.Report {
	t.Helper()
	r, err := train.Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rewriteMetrics(t *testing.T, folder string, lines ...train.Metrics) {
	t.Helper()
	w, err := train.OpenMetrics(filepath.Join(folder, train.MetricsFile), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, m := range lines {
		if err := w.Write(m); err != nil {
			t.Fatal(err)
		}
	}
}

func resave(t *testing.T, folder string, step int, tensors ...train.Tensor) {
	t.Helper()
	f := train.StateFolder{Path: filepath.Join(folder, "state")}
	if _, err := f.Save(someMeta(step), tensors); err != nil {
		t.Fatal(err)
	}
}

func TestCompareEqual(t *testing.T) {
	a, b := run(t), run(t)
	r := compare(t, a, b)
	want := "equal: " + a + " and " + b + ", bit for bit over 3 steps and 3 tensors of the state of step 3"
	if !r.Equal() || r.String() != want {
		t.Errorf("got  %s\nwant %s", r, want)
	}
	// NaN is equal to itself, and the speed does not matter.
	nan := train.Float(math.NaN())
	rewriteMetrics(t, a, train.Metrics{Step: 1, Loss: nan, TPS: 1})
	rewriteMetrics(t, b, train.Metrics{Step: 1, Loss: nan, TPS: 2})
	if r := compare(t, a, b); !r.Equal() {
		t.Error(r)
	}
}

func TestCompareSteps(t *testing.T) {
	a, b := run(t), run(t)
	rewriteMetrics(t, a, train.Metrics{Step: 1, Loss: 1}, train.Metrics{Step: 2}, train.Metrics{Step: 3, GradNorm: 1}, train.Metrics{Step: 4})
	rewriteMetrics(t, b, train.Metrics{Step: 1, Loss: 1}, train.Metrics{Step: 3, GradNorm: 2, Loss: 0}, train.Metrics{Step: 4, Loss: 1}, train.Metrics{Step: 5})
	r := compare(t, a, b)
	if r.Equal() || r.Steps != 3 || !reflect.DeepEqual(r.FirstStep, &train.StepDifference{Step: 3, Key: "grad_norm", A: 1, B: 2}) ||
		!reflect.DeepEqual(r.OnlyStepsA, []int{2}) || !reflect.DeepEqual(r.OnlyStepsB, []int{5}) {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"different: ", "\n  first step that differs: 3: grad_norm 1 and 2", "\n  steps only in " + a + ": 2", "\n  steps only in " + b + ": 5"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("no %q in %s", want, r)
		}
	}
	// The bits count: 0 and -0 differ, and so do neighbours.
	rewriteMetrics(t, a, train.Metrics{Step: 1, Loss: 1})
	rewriteMetrics(t, b, train.Metrics{Step: 1, Loss: train.Float(math.Nextafter(1, 2))})
	if r := compare(t, a, b); r.Equal() || r.FirstStep.Key != "loss" {
		t.Error(r)
	}
}

func TestCompareTensors(t *testing.T) {
	a, b := run(t), run(t)
	tensors := someTensors(3)
	tensors[1].Data = float32s(5) // norm, was -3
	tensors[0].Data = float32s(3, 2, 3.5, 6)
	resave(t, b, 3, append(tensors[:2:2], train.Tensor{Name: "extra", DType: device.Uint8, Shape: []int{1}, Data: []byte{1}})...)
	r := compare(t, a, b)
	want := &train.TensorDifference{Name: "layers.0.wq", SpecA: "float32[2 2]", SpecB: "float32[2 2]",
		Different: 2, Elements: 4, MaxAbs: 2, Index: []int{1, 1}, A: 4, B: 6}
	if r.Equal() || !reflect.DeepEqual(r.FirstTensor, want) ||
		!reflect.DeepEqual(r.OnlyTensorsA, []string{"count"}) || !reflect.DeepEqual(r.OnlyTensorsB, []string{"extra"}) {
		t.Errorf("%+v, %+v", r, r.FirstTensor)
	}
	if want := "first tensor that differs: layers.0.wq: 2 of 4 elements, by up to 2 at [1 1]: 4 and 6"; !strings.Contains(r.String(), want) {
		t.Errorf("no %q in %s", want, r)
	}
	// Another shape.
	tensors = someTensors(3)
	tensors[0].Shape = []int{4}
	resave(t, b, 3, tensors...)
	if r := compare(t, a, b); r.Equal() || !strings.Contains(r.String(), "layers.0.wq: float32[2 2] and float32[4]") {
		t.Error(r)
	}
}

func TestCompareValues(t *testing.T) {
	half := func(bits uint16) []byte { return binary.LittleEndian.AppendUint16(nil, bits) }
	nan := float32(math.NaN())
	for _, test := range []struct {
		dtype  device.DType
		a, b   []byte
		maxAbs float64
		x, y   float64
	}{
		{device.Float32, float32s(0), float32s(float32(math.Copysign(0, -1))), 0, 0, math.Copysign(0, -1)},
		{device.Float32, float32s(1, 5, 1), float32s(2, nan, 9), math.NaN(), 5, math.NaN()},
		{device.Float16, half(0x3c00), half(0xc000), 3, 1, -2},
		{device.Float16, half(0x0001), half(0x0400), math.Ldexp(1023, -24), math.Ldexp(1, -24), math.Ldexp(1, -14)},
		{device.Float16, half(0x7c00), half(0x7bff), math.Inf(1), math.Inf(1), 65504},
		{device.BFloat16, half(0x3f80), half(0x4000), 1, 1, 2},
		{device.Int32, []byte{255, 255, 255, 255}, []byte{1, 0, 0, 0}, 2, -1, 1},
		{device.Uint8, []byte{1, 2}, []byte{1, 9}, 7, 2, 9},
	} {
		a, b := run(t), run(t)
		shape := []int{len(test.a) / test.dtype.Size()}
		resave(t, a, 3, train.Tensor{Name: "x", DType: test.dtype, Shape: shape, Data: test.a})
		resave(t, b, 3, train.Tensor{Name: "x", DType: test.dtype, Shape: shape, Data: test.b})
		d := compare(t, a, b).FirstTensor
		same := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y }
		if d == nil || !same(d.MaxAbs, test.maxAbs) || !same(d.A, test.x) || !same(d.B, test.y) {
			t.Errorf("%v %v %v: %+v", test.dtype, test.a, test.b, d)
		}
	}
}

func TestCompareStatesMissing(t *testing.T) {
	a, b := run(t), run(t)
	remove := func(path ...string) {
		if err := os.RemoveAll(filepath.Join(path...)); err != nil {
			t.Fatal(err)
		}
	}
	// The newest common one is compared, not each run's newest.
	remove(b, "state", "step-00000003")
	if r := compare(t, a, b); !r.Equal() || r.StateStep != 2 {
		t.Error(r)
	}
	remove(a, "state", "step-00000002")
	if r := compare(t, a, b); r.Equal() || !strings.Contains(r.String(), "no state of a common step: 1 and 1 states") {
		t.Error(r)
	}
	remove(a, "state")
	if r := compare(t, a, b); r.Equal() {
		t.Error(r)
	}
	remove(b, "state")
	if r := compare(t, a, b); !r.Equal() || !strings.Contains(r.String(), "no state in either run: parameters are not compared") {
		t.Error(r)
	}
}

func TestCompareFindsStates(t *testing.T) {
	a, b := run(t), run(t)
	c := train.DefaultConfig()
	c.Training.Dataset = train.StringList{"x"}
	c.Job.DumpFolder = "elsewhere" // where the run was before it was moved
	c.State.Folder = "saved"
	text, err := c.TOML()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b, train.ConfigFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(b, "state"), filepath.Join(b, "saved")); err != nil {
		t.Fatal(err)
	}
	if r := compare(t, a, b); !r.Equal() || r.StateStep != 3 {
		t.Error(r)
	}
}

func TestCompareErrors(t *testing.T) {
	a, b := run(t), run(t)
	if _, err := train.Compare(a, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no metrics.jsonl; give the job.dump_folder of a run") {
		t.Errorf("%v", err)
	}
	path := filepath.Join(b, "state", "step-00000003", "tensors-00000.safetensors")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1]++
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := train.Compare(a, b); err == nil || !strings.Contains(err.Error(), path+": corrupt") {
		t.Errorf("%v", err)
	}
}
