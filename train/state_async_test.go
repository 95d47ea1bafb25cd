package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/train"
)

// gate is a file system that makes folders only when it is open.
type gate struct {
	atomicfile.FS
	arrived chan struct{} // a save stands before the gate
	open    chan struct{}
}

func newGate() *gate {
	return &gate{atomicfile.OS, make(chan struct{}, 100), make(chan struct{})}
}

func (g *gate) Mkdir(path string) error {
	g.arrived <- struct{}{}
	<-g.open
	return g.FS.Mkdir(path)
}

// broken is a file system that fails to make folders while it is.
type broken struct {
	atomicfile.FS
	is atomic.Bool
}

func (b *broken) Mkdir(path string) error {
	if b.is.Load() {
		return &os.PathError{Op: "mkdir", Path: path, Err: syscall.ENOSPC}
	}
	return b.FS.Mkdir(path)
}

// stateOf reads the tensors of a state as the trainer's parameters and moments.
func stateOf(t *testing.T, c train.Config, step int) map[string][]float32 {
	t.Helper()
	s, err := train.StateFolder{Path: c.StatePath()}.Load(step)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	values := map[string][]float32{}
	for _, in := range s.Tensors() {
		v := make([]float32, in.Bytes/4)
		if err := s.ReadTensor(train.Tensor{Name: in.Name, DType: in.DType, Shape: in.Shape, Data: bytesOf(v)}); err != nil {
			t.Fatal(err)
		}
		values[in.Name] = v
	}
	return values
}

// bytesOf is the memory of a slice.
func bytesOf(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}

func stepsOf(t *testing.T, c train.Config) []int {
	t.Helper()
	steps, err := train.StateFolder{Path: c.StatePath()}.Steps()
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// What is saved is what was there when SaveAsync returned, whatever is trained before
// it is written.
func TestSaveAsyncIsOfItsStep(t *testing.T) {
	g := newGate()
	c := tinyConfig(t)
	r := newTrainer(t, c, train.Options{}.WithStateFS(g))
	steps(t, r, 1)
	s, err := r.SaveAsync()
	if err != nil {
		t.Fatal(err)
	}
	want := parameters(r)
	<-g.arrived
	steps(t, r, 2)
	select {
	case <-s.Done():
		t.Error("done before anything was written")
	default:
	}
	close(g.open)
	if err := s.Wait(); err != nil || s.Step() != 1 {
		t.Fatalf("step %d: %v", s.Step(), err)
	}
	if name := sameBits(want, stateOf(t, c, 1)); name != "" {
		t.Errorf("%s is not that of step 1", name)
	}
	// The next save finds the same memory, and another step in it.
	want = parameters(r)
	if s, err = r.SaveAsync(); err != nil {
		t.Fatal(err)
	}
	steps(t, r, 1)
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	if name := sameBits(want, stateOf(t, c, 3)); name != "" {
		t.Errorf("%s is not that of step 3", name)
	}
}

// A run that is told to stop while a state is being written has both states on disk
// when it ends, and tells of neither before.
func TestStopWhileSaving(t *testing.T) {
	g := newGate()
	c := tinyConfig(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	var log bytes.Buffer
	hook := train.Hook{AfterStep: func(_ context.Context, r *train.Trainer, _ train.StepResult) error {
		if r.Steps() == 3 {
			<-g.arrived
			if strings.Contains(log.String(), "saved in") {
				t.Error("a state is called saved before it is")
			}
			cancel(errors.New("signal"))
			close(g.open)
		}
		return nil
	}}
	err := newTrainer(t, c, train.Options{Log: &log, Hooks: []train.Hook{hook}}.WithStateFS(g)).Run(ctx)
	if !errors.Is(err, train.ErrStopped) {
		t.Fatalf("error %v, want ErrStopped", err)
	}
	if got := stepsOf(t, c); !slices.Equal(got, []int{2, 3}) || strings.Count(log.String(), "saved in") != 2 {
		t.Errorf("states %v, log\n%s", got, &log)
	}
}

// A failed save at an interval is told and tried again; that at the end fails the run.
func TestSaveFails(t *testing.T) {
	for _, mode := range []string{"async", "disabled"} {
		c := tinyConfig(t)
		c.State.AsyncMode = mode
		fs := &broken{FS: atomicfile.OS}
		until := 3
		hook := train.Hook{BeforeStep: func(_ context.Context, r *train.Trainer) error {
			fs.is.Store(r.Steps() < until)
			return nil
		}}
		var log bytes.Buffer
		o := train.Options{Log: &log, Hooks: []train.Hook{hook}}.WithStateFS(fs)
		if mode == "async" {
			// The writing of step 2 ends before the disk is mended.
			o.Hooks = append(o.Hooks, train.Hook{Priority: train.SavePriority + 1, AfterStep: func(_ context.Context, r *train.Trainer, _ train.StepResult) error {
				r.WaitForSave()
				return nil
			}})
		}
		if err := newTrainer(t, c, o).Run(context.Background()); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if got := stepsOf(t, c); !slices.Equal(got, []int{4, 6}) {
			t.Errorf("%s: states %v", mode, got)
		}
		if text := log.String(); strings.Count(text, "step 2 is not saved: mkdir "+c.StatePath()) != 1 || !strings.Contains(text, "training goes on") {
			t.Errorf("%s: log\n%s", mode, text)
		}

		c.Job.DumpFolder = t.TempDir()
		until = 100
		err := newTrainer(t, c, o).Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), "step 6 is not saved: mkdir "+c.StatePath()) {
			t.Errorf("%s: error %v: the last state is lost", mode, err)
		}
	}
}

// Stopped after any step, and killed before any save, a run goes on to the same bits.
func TestStopAnywhereEqualsNeverStopping(t *testing.T) {
	whole := tinyConfig(t)
	whole.Training.GlobalBatchSize = 8
	whole.State.Interval = 1
	whole.State.KeepLatestK = 0
	trainAll(t, whole)
	for _, mode := range []string{"async", "disabled"} {
		for stop := 1; stop < whole.Training.Steps; stop++ {
			parts := whole
			parts.State.AsyncMode = mode
			parts.Job.DumpFolder = t.TempDir()
			if err := runInterrupted(t, parts, stop); !errors.Is(err, train.ErrStopped) {
				t.Fatalf("error %v, want ErrStopped", err)
			}
			trainAll(t, parts)
			wantEqual(t, whole, parts)
			wantSameMeta(t, whole, parts)
		}
	}
}

// wantSameMeta compares what a state says besides its tensors.
func wantSameMeta(t *testing.T, a, b train.Config) {
	t.Helper()
	for step := 1; step <= a.Training.Steps; step++ {
		var text [2]string
		for i, c := range []train.Config{a, b} {
			s, err := train.StateFolder{Path: c.StatePath()}.Load(step)
			if err != nil {
				t.Fatal(err)
			}
			text[i] = fmt.Sprintf("%+v", s.StateMeta)
			s.Close()
		}
		if text[0] != text[1] {
			t.Errorf("step %d: %s and %s", step, text[0], text[1])
		}
	}
}

// SaveAsync may be called at every step, also by one who never looks at the outcome.
func TestSaveAsyncOneAtATime(t *testing.T) {
	c := tinyConfig(t)
	c.State.KeepLatestK = 0
	r := newTrainer(t, c, train.Options{})
	var all []*train.Saving
	for range 4 {
		steps(t, r, 1)
		s, err := r.SaveAsync()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	var waiting sync.WaitGroup
	for range 3 {
		for _, s := range all {
			waiting.Go(func() {
				if err := s.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	waiting.Wait()
	if got := stepsOf(t, c); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("states %v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(c.StatePath(), "*"+atomicfile.TempSuffix)); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// Two runs cannot share a folder, neither at once nor one after the other from the same
// state.
func TestDumpFolderIsLocked(t *testing.T) {
	c := tinyConfig(t)
	late := newTrainer(t, c, train.Options{}) // has found no state
	var inside error
	hook := train.Hook{Start: func(ctx context.Context, _ *train.Trainer) error {
		inside = late.Run(ctx)
		return nil
	}}
	if err := newTrainer(t, c, train.Options{Hooks: []train.Hook{hook}}).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	var config *train.ConfigError
	if !errors.As(inside, &config) || !strings.Contains(inside.Error(), fmt.Sprintf("%s is locked by process %d", filepath.Join(c.Job.DumpFolder, "lock"), os.Getpid())) {
		t.Errorf("a second run at once: %v", inside)
	}
	if err := late.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "start again") {
		t.Errorf("a second run from the state before the first: %v", err)
	}
	trainAll(t, c) // the lock is free again
}
