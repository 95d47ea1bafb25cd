package train_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

func float32s(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func someMeta(step int) train.StateMeta {
	return train.StateMeta{Step: step, KernelLevel: "avx2", ConfigHash: "abc", Loader: json.RawMessage(`{"epoch":1}`)}
}

func someTensors(x float32) []train.Tensor {
	return []train.Tensor{
		{Name: "layers.0.wq", DType: device.Float32, Shape: []int{2, 2}, Data: float32s(x, 2, 3, 4)},
		{Name: "norm", DType: device.Float32, Shape: []int{1}, Data: float32s(-x)},
		{Name: "count", DType: device.Int64, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
	}
}

// blank is somewhere to read tensors like those given into.
func blank(tensors []train.Tensor) []train.Tensor {
	var to []train.Tensor
	for _, t := range tensors {
		t.Data = make([]byte, len(t.Data))
		to = append(to, t)
	}
	return to
}

func save(t *testing.T, f train.StateFolder, steps ...int) {
	t.Helper()
	for _, step := range steps {
		if warnings, err := f.Save(someMeta(step), someTensors(float32(step))); err != nil || warnings != nil {
			t.Fatal(warnings, err)
		}
	}
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestStateRoundTrip(t *testing.T) {
	f := train.StateFolder{Path: filepath.Join(t.TempDir(), "run", "state")}
	if _, _, err := f.LoadLatest(); !errors.Is(err, train.ErrNoState) {
		t.Fatalf("nothing saved: %v", err)
	}
	save(t, f, 10, 20)
	s, skipped, err := f.LoadLatest()
	if err != nil || skipped != nil {
		t.Fatal(skipped, err)
	}
	defer s.Close()
	want := someTensors(20)
	got := blank(want)
	if err := s.Read(got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	var loader map[string]int
	if err := json.Unmarshal(s.Loader, &loader); err != nil || loader["epoch"] != 1 {
		t.Errorf("loader state is %s", s.Loader)
	}
	s.Loader = nil
	meta := someMeta(20)
	meta.Loader = nil
	if !reflect.DeepEqual(s.StateMeta, meta) {
		t.Errorf("meta is %+v", s.StateMeta)
	}
	if steps, err := f.Steps(); err != nil || !reflect.DeepEqual(steps, []int{10, 20}) {
		t.Errorf("steps are %v, %v", steps, err)
	}
}

func TestStateKeepLatest(t *testing.T) {
	f := train.StateFolder{Path: t.TempDir(), KeepLatest: 2}
	save(t, f, 1, 2, 3, 4)
	if got := names(t, f.Path); !reflect.DeepEqual(got, []string{"step-00000003", "step-00000004"}) {
		t.Errorf("left are %v", got)
	}
	// A broken state does not count, so a good one is never deleted for it.
	if err := os.Truncate(filepath.Join(f.Path, "step-00000004/state.json"), 9); err != nil {
		t.Fatal(err)
	}
	save(t, f, 5)
	if got := names(t, f.Path); !reflect.DeepEqual(got, []string{"step-00000003", "step-00000004", "step-00000005"}) {
		t.Errorf("left are %v", got)
	}
	save(t, f, 6)
	if got := names(t, f.Path); !reflect.DeepEqual(got, []string{"step-00000005", "step-00000006"}) {
		t.Errorf("left are %v", got)
	}
	// What was just saved stays, whatever its number.
	if warnings, err := f.Save(someMeta(2), someTensors(2)); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "step-00000006 is newer than step 2") {
		t.Errorf("%v, %v", warnings, err)
	}
	if got := names(t, f.Path); !reflect.DeepEqual(got, []string{"step-00000002", "step-00000006"}) {
		t.Errorf("left are %v", got)
	}
}

func TestStateSaveReplaces(t *testing.T) {
	f := train.StateFolder{Path: t.TempDir(), KeepLatest: 1}
	save(t, f, 7)
	if _, err := f.Save(someMeta(7), someTensors(70)); err != nil {
		t.Fatal(err)
	}
	s, err := f.Load(7)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	norm := train.Tensor{Name: "norm", DType: device.Float32, Shape: []int{1}, Data: make([]byte, 4)}
	if err := s.ReadTensor(norm); err != nil || !reflect.DeepEqual(norm.Data, float32s(-70)) {
		t.Errorf("%v, %v", norm.Data, err)
	}
	if got := names(t, f.Path); len(got) != 1 {
		t.Errorf("left are %v", got)
	}
}

func TestStateLeftovers(t *testing.T) {
	f := train.StateFolder{Path: t.TempDir()}
	path := func(name string) string { return filepath.Join(f.Path, name) }
	if err := os.MkdirAll(path("step-00000009.tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.LoadLatest(); !errors.Is(err, train.ErrNoState) {
		t.Errorf("only a leftover: %v", err)
	}
	save(t, f, 3, 4)
	if got := names(t, f.Path); !reflect.DeepEqual(got, []string{"step-00000003", "step-00000004"}) {
		t.Errorf("leftovers are not removed: %v", got)
	}
	// Killed while 4 was being replaced.
	if err := os.Rename(path("step-00000004"), path("step-00000004.old")); err != nil {
		t.Fatal(err)
	}
	for _, load := range []func() (*train.State, error){
		func() (*train.State, error) { return f.Load(4) },
		func() (*train.State, error) { s, _, err := f.LoadLatest(); return s, err },
	} {
		s, err := load()
		if err != nil || s.Step != 4 {
			t.Fatalf("%v", err)
		}
		s.Close()
	}
	save(t, f, 5)
	if got := names(t, f.Path); !reflect.DeepEqual(got, []string{"step-00000003", "step-00000004", "step-00000005"}) {
		t.Errorf("the replaced state did not get its name back: %v", got)
	}
	// A name nobody wrote is reported.
	if err := os.Rename(path("step-00000005"), path("step-5")); err != nil {
		t.Fatal(err)
	}
	s, skipped, err := f.LoadLatest()
	if err != nil || s.Step != 4 || len(skipped) != 1 || !strings.Contains(skipped[0].Reason.Error(), "step-5") {
		t.Errorf("%v %v", skipped, err)
	}
	s.Close()
}

func TestStateReadMismatch(t *testing.T) {
	f := train.StateFolder{Path: t.TempDir()}
	save(t, f, 1)
	s, err := f.Load(1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for want, change := range map[string]func(x []train.Tensor) []train.Tensor{
		"has no norm.weight, which the model needs as float32[1]; use": func(x []train.Tensor) []train.Tensor {
			x[1].Name = "norm.weight"
			return x
		},
		"layers.0.wq is float32[2 2], the model needs float32[4]": func(x []train.Tensor) []train.Tensor {
			x[0].Shape = []int{4}
			return x
		},
		"count is int64[], the model needs float64[]": func(x []train.Tensor) []train.Tensor {
			x[2].DType = device.Float64
			return x
		},
		"norm has 4 bytes, the slice to fill 3": func(x []train.Tensor) []train.Tensor {
			x[1].Data = x[1].Data[:3]
			return x
		},
		"holds norm float32[1], which the model does not have": func(x []train.Tensor) []train.Tensor {
			return []train.Tensor{x[0], x[2]}
		},
	} {
		tensors := change(blank(someTensors(0)))
		err := s.Read(tensors)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "step-00000001") {
			t.Errorf("got %v, want %s", err, want)
		}
		if tensors[0].Data[3] != 0 {
			t.Errorf("%s: something was read although not all fits", want)
		}
	}
}

// TestStateCorrupt flips a bit of every byte and cuts at every boundary of the
// format, and elsewhere: each must be found, in one line that names the file,
// and an older state loaded.
func TestStateCorrupt(t *testing.T) {
	t.Parallel()
	f := train.StateFolder{Path: t.TempDir()}
	save(t, f, 1, 2)
	for _, name := range []string{"state.json", "tensors-00000.safetensors"} {
		path := filepath.Join(f.Path, "step-00000002", name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		check := func(how string, content []byte) {
			t.Helper()
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
			s, skipped, err := f.LoadLatest()
			if err != nil {
				t.Fatalf("%s %s: %v", name, how, err)
			}
			defer s.Close()
			if s.Step != 1 || len(skipped) != 1 {
				t.Fatalf("%s %s: loaded step %d, skipped %v", name, how, s.Step, skipped)
			}
			if reason := skipped[0].Reason.Error(); !strings.Contains(reason, path+": ") || strings.Contains(reason, "\n") ||
				!strings.Contains(reason, "; delete the folder") {
				t.Errorf("%s %s: %s", name, how, reason)
			}
		}
		for i := range good {
			bad := append([]byte{}, good...)
			bad[i] ^= 1 << (i % 8)
			check(fmt.Sprintf("bit %d of byte %d flipped", i%8, i), bad)
			// Lines of the index, the length and the parts of the header, tensors.
			if i%8 == 0 || strings.ContainsRune("\n{}[],", rune(good[i])) {
				check(fmt.Sprintf("cut at %d", i), good[:i])
			}
		}
		check("with a byte more", append(append([]byte{}, good...), 0))
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		s, skipped, err := f.LoadLatest()
		if err != nil || s.Step != 1 || !strings.Contains(skipped[0].Reason.Error(), path+": no such file") {
			t.Errorf("missing: %v, %v", skipped, err)
		}
		s.Close()
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing loads: that is not the same as nothing saved.
	for _, step := range []string{"step-00000001", "step-00000002"} {
		if err := os.Truncate(filepath.Join(f.Path, step, "state.json"), 0); err != nil {
			t.Fatal(err)
		}
	}
	_, skipped, err := f.LoadLatest()
	if err == nil || errors.Is(err, train.ErrNoState) || len(skipped) != 2 || !strings.Contains(err.Error(), "none of 2 states loads; the newest: ") {
		t.Errorf("%v, %v", skipped, err)
	}
}

func TestStateFolderNotUsable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, f := range []train.StateFolder{{Path: file}, {Path: filepath.Join(file, "state")}} {
		_, err := f.Save(someMeta(1), someTensors(1))
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "step 1 is not saved") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
		if _, _, err := f.LoadLatest(); err == nil || errors.Is(err, train.ErrNoState) {
			t.Errorf("%v", err)
		}
	}
	if _, err := train.OpenState(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
	if os.Getuid() == 0 {
		t.Skip("root writes to read-only folders")
	}
	f := train.StateFolder{Path: filepath.Join(t.TempDir(), "state")}
	save(t, f, 1)
	if err := os.Chmod(f.Path, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(f.Path, 0o755)
	if _, err := f.Save(someMeta(2), someTensors(2)); err == nil || !strings.Contains(err.Error(), f.Path) {
		t.Errorf("%v", err)
	}
	if s, _, err := f.LoadLatest(); err != nil {
		t.Errorf("a read-only folder must load: %v", err)
	} else {
		s.Close()
	}
}

func TestSaveRefuses(t *testing.T) {
	f := train.StateFolder{Path: t.TempDir()}
	save(t, f, 1)
	bad := someTensors(1)
	bad[1].Name = bad[0].Name
	meta := someMeta(2)
	meta.Loader = json.RawMessage("{")
	for _, try := range []func() error{
		func() error { _, err := f.Save(someMeta(2), bad); return err },
		func() error { _, err := f.Save(meta, someTensors(1)); return err },
		func() error { _, err := f.Save(someMeta(-1), someTensors(1)); return err },
	} {
		if err := try(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	}
	if got := names(t, f.Path); !reflect.DeepEqual(got, []string{"step-00000001"}) {
		t.Errorf("left are %v", got)
	}
}

func ExampleStateFolder() {
	folder, err := os.MkdirTemp("", "state")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	states := train.StateFolder{Path: folder, KeepLatest: 2}

	weight := train.Tensor{Name: "output.weight", DType: device.Uint8, Shape: []int{3}, Data: []byte{1, 2, 3}}
	if _, err := states.Save(train.StateMeta{Step: 20}, []train.Tensor{weight}); err != nil {
		panic(err)
	}

	clear(weight.Data)
	latest, _, err := states.LoadLatest()
	if err != nil {
		panic(err)
	}
	defer latest.Close()
	if err := latest.Read([]train.Tensor{weight}); err != nil {
		panic(err)
	}
	fmt.Println(latest.Step, weight.Data)
	// Output: 20 [1 2 3]
}
