package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/internal/atomicfile/crashfs"
)

// stepTensors is the content of the state of a step: every byte depends on it.
func stepTensors(step, size int) []Tensor {
	var tensors []Tensor
	for i := range 3 {
		data := bytes.Repeat([]byte{byte(step), byte(step >> 8), byte(i), 7}, size)
		tensors = append(tensors, Tensor{fmt.Sprint("t", i), device.Float32, []int{size}, data})
	}
	return tensors
}

// checkLatest loads the newest state and checks that it is that of its step.
func checkLatest(f StateFolder, size int) (step int, skipped []Skipped, err error) {
	s, skipped, err := f.LoadLatest()
	if err != nil {
		return 0, skipped, err
	}
	defer s.Close()
	got := stepTensors(0, size)
	if err := s.Read(got); err != nil {
		return 0, skipped, err
	}
	for i, want := range stepTensors(s.Step, size) {
		if !bytes.Equal(got[i].Data, want.Data) {
			return 0, skipped, fmt.Errorf("%s is called complete, but %s is not that of its step", s.Path(), want.Name)
		}
	}
	return s.Step, skipped, nil
}

// TestSaveCrashMatrix fails, fills the disk, makes it read-only, kills and cuts the power
// at every file operation of a save that also deletes an old state.
func TestSaveCrashMatrix(t *testing.T) {
	t.Parallel()
	const size = 3
	for _, saved := range []int{2, 3} { // a new step, or one that has a state
		var count int
		for at := 0; at == 0 || at <= count+1; at++ {
			for _, mode := range []crashfs.Mode{crashfs.Fail, crashfs.Full, crashfs.ReadOnly, crashfs.Kill, crashfs.PowerLoss} {
				for seed := range uint64(3) {
					if mode != crashfs.PowerLoss && seed > 0 {
						continue
					}
					// A crashfs without a crash spares the real syncs.
					f := StateFolder{Path: filepath.Join(t.TempDir(), "state"), KeepLatest: 2, fs: &crashfs.FS{}}
					for step := 1; step <= saved; step++ {
						if _, err := f.Save(StateMeta{Step: step}, stepTensors(step, size)); err != nil {
							t.Fatal(err)
						}
					}
					fs := &crashfs.FS{At: at, Mode: mode, Seed: seed}
					f.fs = fs
					_, saveErr := f.Save(StateMeta{Step: 3}, stepTensors(3, size))
					count = max(count, fs.Ops)
					if saveErr == nil && mode == crashfs.PowerLoss {
						fs.LosePower() // what is called saved is durable
					}
					name := fmt.Sprintf("%v at operation %d, seed %d, after step %d", mode, at, seed, saved)

					step, skipped, err := checkLatest(f, size)
					switch {
					case err != nil:
						t.Errorf("%s: nothing loads: %v", name, err)
					case saveErr == nil && step != 3, step < 2:
						t.Errorf("%s: loads step %d, the save returned %v", name, step, saveErr)
					case len(skipped) > 0:
						t.Errorf("%s: incomplete under a final name: %v", name, skipped)
					case saveErr != nil && strings.Contains(saveErr.Error(), "\n"):
						t.Errorf("%s: error has several lines: %v", name, saveErr)
					case saveErr != nil && mode < crashfs.Kill && !strings.Contains(saveErr.Error(), filepath.Join(f.Path, "step-")) && !strings.Contains(saveErr.Error(), "sync "+f.Path):
						t.Errorf("%s: error does not name the file: %v", name, saveErr)
					}
					// The next save cleans up.
					f.fs = &crashfs.FS{}
					if warnings, err := f.Save(StateMeta{Step: 4}, stepTensors(4, size)); err != nil || warnings != nil {
						t.Errorf("%s: the next save: %v, %v", name, warnings, err)
					}
					entries, _ := os.ReadDir(f.Path)
					if len(entries) != 2 {
						t.Errorf("%s: after the next save: %v", name, entries)
					}
				}
			}
		}
		if count < 10 {
			t.Errorf("a save has only %d operations", count)
		}
	}
}

// TestSaveCrashSeries lets one crash follow another: whatever the last one left, some
// state loads, none older than what was called saved, and none that is not whole.
func TestSaveCrashSeries(t *testing.T) {
	t.Parallel()
	const size = 3
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		f := StateFolder{Path: filepath.Join(t.TempDir(), "state"), KeepLatest: 1 + int(seed%3)}
		saved, history := 0, ""
		for step := 1; step <= 12; step++ {
			fs := &crashfs.FS{At: random.IntN(40), Mode: crashfs.Mode(random.IntN(5)), Seed: random.Uint64()}
			f.fs = fs
			_, saveErr := f.Save(StateMeta{Step: step}, stepTensors(step, size))
			if saveErr == nil {
				saved = step
				if fs.Mode == crashfs.PowerLoss {
					fs.LosePower()
				}
			}
			history += fmt.Sprintf("step %d: %v at operation %d: %v\n", step, fs.Mode, fs.At, saveErr)
			loaded, skipped, err := checkLatest(f, size)
			if errors.Is(err, ErrNoState) && saved == 0 {
				continue
			}
			if err != nil || loaded < saved || len(skipped) > 0 {
				t.Fatalf("seed %d: step %d was saved, %d loads, skipped %v: %v; after\n%s", seed, saved, loaded, skipped, err, history)
			}
			if random.IntN(3) == 0 {
				step-- // the run goes on from there and saves the step again
			}
		}
	}
}

// The child of TestSaveKilled gets the folder to save to by this variable.
const killedFolder = "LETHE_TEST_SAVE_FOLDER"

const killedSize = 64 << 10

func TestMain(m *testing.M) {
	if folder := os.Getenv(killedFolder); folder != "" {
		saveForever(StateFolder{Path: folder, KeepLatest: 2})
	}
	flag.Parse()
	os.Exit(m.Run())
}

func saveForever(f StateFolder) {
	step, _, err := checkLatest(f, killedSize)
	if err != nil && !errors.Is(err, ErrNoState) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("begun")
	for {
		step++
		for range 2 { // the second replaces the first
			if _, err := f.Save(StateMeta{Step: step}, stepTensors(step, killedSize)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println("saved")
		}
	}
}

func TestSaveKilled(t *testing.T) {
	t.Parallel()
	kills := 60
	if testing.Short() {
		kills = 10
	}
	f := StateFolder{Path: filepath.Join(t.TempDir(), "state"), KeepLatest: 2}
	last := 0
	for i := range kills {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), killedFolder+"="+f.Path)
		var output bytes.Buffer
		child.Stderr = &output
		says, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// A child may take long to begin. The first one lives until it has saved.
		lines := bufio.NewScanner(says)
		for lines.Scan() && i == 0 && lines.Text() != "saved" {
		}
		go io.Copy(io.Discard, says)
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // "signal: killed"
		if output.Len() > 0 {
			t.Fatalf("the child failed: %s", &output)
		}
		step, skipped, err := checkLatest(f, killedSize)
		if errors.Is(err, ErrNoState) && last == 0 {
			continue // killed within the very first save
		}
		if err != nil || step < last || len(skipped) > 0 {
			t.Fatalf("after step %d: loads step %d, skipped %v: %v", last, step, skipped, err)
		}
		last = step
	}
	if last == 0 {
		t.Error("no child lived long enough to save")
	}
	t.Logf("killed %d times; the last state is step %d", kills, last)
}

// FuzzStateIndex gives the reader any index whose checksum is right.
func FuzzStateIndex(f *testing.F) {
	folder := StateFolder{Path: f.TempDir()}
	if _, err := folder.Save(StateMeta{Step: 1, Loader: json.RawMessage("{}")}, stepTensors(1, 2)); err != nil {
		f.Fatal(err)
	}
	s, err := folder.Load(1)
	if err != nil {
		f.Fatal(err)
	}
	s.Close()
	path := s.Path()
	text, err := os.ReadFile(filepath.Join(path, indexFile))
	if err != nil {
		f.Fatal(err)
	}
	body, _, ok := cutChecksum(text)
	if !ok {
		f.Fatal("no checksum")
	}
	f.Add(body)
	f.Add([]byte(`{"version":1,"files":[{"name":"../x"}],"tensors":[]`))
	f.Add([]byte(`{"version":2`))
	f.Fuzz(func(t *testing.T, body []byte) {
		state := newState(path)
		defer state.Close()
		err := state.openIndexed(sealIndex(slices.Clone(body)))
		if err == nil {
			err = state.Verify()
		}
		if err == nil {
			for _, info := range state.Tensors() {
				if err := state.ReadTensor(Tensor{info.Name, info.DType, info.Shape, make([]byte, info.Bytes)}); err != nil {
					t.Error(err)
				}
			}
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "train: state: "+path) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%v", err)
		}
	})
}
