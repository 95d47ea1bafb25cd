package train_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/lethe-go/lethe/train"
)

// The memory of a run with ranks does not grow with its steps, while states are saved in the
// background.
func TestMemoryIsFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("1,000 steps")
	}
	trainFlat(t, onRanks(t, 1, 2))
}

// memoryUse is what a process holds when nothing that can be given back is left.
type memoryUse struct{ heap, resident int64 }

func measureMemory() (m memoryUse) {
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.heap = int64(stats.HeapAlloc)
	var size, pages int64
	text, _ := os.ReadFile("/proc/self/statm")
	fmt.Sscan(string(text), &size, &pages)
	m.resident = pages * int64(os.Getpagesize())
	return m
}

// trainFlat makes 1,000 steps and compares memory after 100 and after all.
func trainFlat(t *testing.T, c train.Config) {
	c.Training.DType = "float32"
	c.Training.Steps, c.Metrics.LogFreq = 1000, 10
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 9, 1, 2
	c.State.Enable, c.State.Interval, c.State.KeepLatestK = true, 90, 2
	// Text would need more memory at its longest document.
	o := train.Options{Model: tinyLatent(), Dataset: &train.Dataset{Name: "counting", Train: counting(1, 9, 5000)}}
	var at100, at1000 memoryUse
	o.Hooks = []train.Hook{{AfterStep: func(_ context.Context, r *train.Trainer, _ train.StepResult) error {
		if n := r.Steps(); n == 100 || n == 1000 {
			r.WaitForSave()
			*map[int]*memoryUse{100: &at100, 1000: &at1000}[n] = measureMemory()
		}
		return nil
	}}}
	if err := newTrainer(t, c, o).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Logf("step 100: %d bytes on the Go heap, %d resident; step 1,000: %d and %d", at100.heap, at100.resident, at1000.heap, at1000.resident)
	if at1000.heap > at100.heap+64<<10 || at100.resident > 0 && at1000.resident > at100.resident+4<<20 {
		t.Errorf("memory grows: after 100 steps %+v, after 1,000 %+v", at100, at1000)
	}
}
