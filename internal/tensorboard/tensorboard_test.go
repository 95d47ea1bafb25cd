package tensorboard

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/internal/tensorboard/eventtest"
)

// clock gives the times of the golden file.
func clock(times ...float64) func() time.Time {
	return func() time.Time {
		t := times[0]
		times = times[1:]
		return time.UnixMicro(int64(t * 1e6))
	}
}

// TestGolden writes the events of testdata/golden.py, which TensorBoard's own writer
// wrote, to the byte.
func TestGolden(t *testing.T) {
	w, err := create(t.TempDir(), 11, clock(1700000000, 1700000000.25, 1700000001.5, 1700000002.75, 1700000003))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Write(11, Value{Tag: "loss_metrics/global_avg_loss", Scalar: 2.5}, Value{Tag: "grad_norm"}); err != nil {
		t.Fatal(err)
	}
	err = w.Write(300, Value{Tag: "loss_metrics/global_avg_loss", Scalar: math.NaN()}, Value{Tag: "lr", Scalar: -1e-30},
		Value{Tag: "expert_load/layers.0.moe", Histogram: Bars([]float64{3, 0, 5, 8})})
	if err != nil {
		t.Fatal(err)
	}
	got, want := read(t, w.Path()), read(t, "testdata/golden.tfevents")
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReadBack(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "a", "tb"), 1)
	if err != nil {
		t.Fatal(err)
	}
	for step := 1; step <= 3; step++ {
		if err := w.Write(step, Value{Tag: "x", Scalar: float64(step) / 4}, Value{Tag: "h", Histogram: Bars([]float64{1, 2})}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		t.Fatal(err)
	}
	whole := read(t, w.Path())
	events, err := eventtest.Read(whole)
	if err != nil || len(events) != 5 || events[0].FileVersion != "brain.Event:2" || !events[1].Start || events[1].Step != 1 {
		t.Fatalf("%v: %+v", err, events)
	}
	last := events[4]
	if last.Step != 3 || math.Abs(last.WallTime-float64(time.Now().Unix())) > 3600 || last.Values[0].Tag != "x" || last.Values[0].Scalar != 0.75 {
		t.Errorf("%+v", last)
	}
	if want := (eventtest.Value{Tag: "h", Min: -0.5, Max: 1.5, Num: 3, Sum: 2, SumSquares: 2, Limits: []float64{0.5, 1.5}, Counts: []float64{1, 2}}); !reflect.DeepEqual(last.Values[1], want) {
		t.Errorf("%+v, want %+v", last.Values[1], want)
	}
	// Torn anywhere, what came before is there.
	for cut := range whole {
		some, err := eventtest.Read(whole[:cut])
		if err != nil && err != eventtest.ErrTorn || len(some) > 0 && !reflect.DeepEqual(some, events[:len(some)]) {
			t.Fatalf("cut at %d: %v, %d events", cut, err, len(some))
		}
	}
}

// Readers take files in the order of their names.
func TestLaterFilesSortLater(t *testing.T) {
	folder := t.TempDir()
	var last string
	for _, now := range []float64{1700000000, 1700000000, 1600000000, 1800000000, -5, 1e11} {
		w, err := create(folder, 1, func() time.Time { return time.Unix(int64(now), 0) })
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		name := filepath.Base(w.Path())
		if name <= last || !strings.HasPrefix(name, filePrefix) {
			t.Errorf("%s after %s", name, last)
		}
		last = name
	}
}

func TestFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(file, 1); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v", err)
	}
}

// FuzzRecord checks that any event comes back, and that the reader of the tests takes
// anything.
func FuzzRecord(f *testing.F) {
	f.Add("loss", 2.5, int64(3), []byte{1, 2})
	f.Add("", math.Inf(1), int64(-1), []byte(nil))
	f.Fuzz(func(t *testing.T, tag string, x float64, step int64, bars []byte) {
		eventtest.Read(bars)
		eventtest.Read(appendRecord(nil, bars))
		v := Value{Tag: tag, Scalar: x}
		if len(bars) > 0 {
			v.Histogram = &Histogram{Min: x, Max: x, Num: x, Sum: x, SumSquares: x}
			for _, b := range bars {
				v.Histogram.Limits, v.Histogram.Counts = append(v.Histogram.Limits, x), append(v.Histogram.Counts, float64(b))
			}
		}
		events, err := eventtest.Read(appendRecord(nil, summaryEvent(x, step, []Value{v})))
		if err != nil || len(events) != 1 || events[0].Step != step || len(events[0].Values) != 1 {
			t.Fatalf("%v: %+v", err, events)
		}
		got := events[0].Values[0]
		if got.Tag != tag || len(got.Counts) != len(bars) || math.Float64bits(events[0].WallTime) != math.Float64bits(x) {
			t.Errorf("%+v", got)
		}
		if len(bars) == 0 && math.Float32bits(got.Scalar) != math.Float32bits(float32(x)) {
			t.Errorf("%v, want %v", got.Scalar, x)
		}
		if len(bars) > 0 && (math.Float64bits(got.Sum) != math.Float64bits(x) || got.Counts[0] != float64(bars[0])) {
			t.Errorf("%+v", got)
		}
	})
}
