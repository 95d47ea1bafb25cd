package train_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

// With half of what is saved in a file, twenty steps are those of mode "none", bit for bit.
func TestOffloadTrainsTheSameBits(t *testing.T) {
	none := tinyConfig(t)
	none.ActivationCheckpoint.Mode = "none"
	none.Training.Steps, none.Training.GlobalBatchSize, none.State.Interval = 20, 8, 20
	trainAll(t, none)
	saved := metrics(t, none)[0].SavedBytes
	for _, mode := range []string{"none", "selective"} {
		c := none
		c.Job.DumpFolder = t.TempDir()
		c.ActivationCheckpoint.Mode = mode
		c.ActivationCheckpoint.Offload = train.StringList{"matmul", "swiglu", "attention", "rope"}
		trainAll(t, c)
		wantEqual(t, none, c)
		for _, m := range metrics(t, c) {
			moved := m.OffloadedBytes / 2 // of a microbatch
			if m.ReloadedBytes != m.OffloadedBytes || moved == 0 || m.OffloadExposedSeconds < 0 {
				t.Fatalf("mode %s, step %d: %d bytes offloaded, %d reloaded", mode, m.Step, m.OffloadedBytes, m.ReloadedBytes)
			}
			if mode == "none" && (moved < saved/2 || m.SavedBytes+moved != saved) {
				t.Fatalf("%d bytes in memory and %d in the file, %d without offload", m.SavedBytes, moved, saved)
			}
		}
		if list, _ := filepath.Glob(filepath.Join(c.Job.DumpFolder, "lethe-spill-*")); len(list) > 0 {
			t.Errorf("%v is left", list)
		}
	}
}

func metrics(t *testing.T, c train.Config) []train.Metrics {
	t.Helper()
	lines, err := train.ReadMetrics(filepath.Join(c.Job.DumpFolder, train.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// Experts on two ranks: what travels between them, with as many rows as come, is offloaded
// like anything else, and predicted peaks are measured peaks.
func TestOffloadOnRanks(t *testing.T) {
	c := onRanks(t, 1, 2)
	c.ActivationCheckpoint.Mode = "none"
	want := steps(t, newTrainer(t, c, train.Options{Model: latent(device.Float32)}), 3)
	c.ActivationCheckpoint.Offload = train.StringList{"matmul", "all_to_all", "grouped_matmul"}
	c.ActivationCheckpoint.OffloadBandwidth = 1e8
	for i, got := range steps(t, newTrainer(t, c, train.Options{Model: latent(device.Float32)}), 3) {
		if got != want[i] {
			t.Errorf("step %d: %+v, want %+v", i+1, got, want[i])
		}
	}
	all, err := train.MeasurePeaks(context.Background(), c, "none", train.Options{Model: latent(device.Float32)})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Predicted != m.Peak || m.Differs != "" || !m.SameLoss {
			t.Errorf("%+v", m)
		}
	}
}

// fullDisk has no more room from an offload on.
type fullDisk struct {
	device.Spill
	left int
}

func (d *fullDisk) Offload(q device.Queue, offset int64, t device.Tensor) error {
	if d.left--; d.left < 0 {
		return &device.SpillError{Offset: offset, Err: syscall.ENOSPC}
	}
	return d.Spill.Offload(q, offset, t)
}

// A disk that is full in the middle of a run ends it with an error that names the value.
// The last state is whole, and the run that resumes from it equals one without the accident.
func TestFullDiskLosesNothing(t *testing.T) {
	whole := tinyConfig(t)
	whole.ActivationCheckpoint.Offload = train.StringList{"attention"}
	trainAll(t, whole)
	c := whole
	c.Job.DumpFolder = t.TempDir()
	disk := &fullDisk{left: 18} // four values a step, two in each layer: the fifth step fails
	r := newTrainer(t, c, train.Options{}.WithSpill(func(s device.Spill) device.Spill {
		disk.Spill = s
		return disk
	}))
	err := r.Run(context.Background())
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "graph: layers.1.attention.attention:0: offload: ") {
		t.Fatalf("error %v", err)
	}
	if r.Steps() != 4 {
		t.Errorf("%d steps were made, want 4", r.Steps())
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	trainAll(t, c)
	wantEqual(t, whole, c)
}

func TestOffloadFolder(t *testing.T) {
	c := tinyConfig(t)
	c.ActivationCheckpoint.Offload = train.StringList{"attention"}
	c.ActivationCheckpoint.OffloadFolder = filepath.Join(c.Job.DumpFolder, "file")
	if err := os.WriteFile(c.ActivationCheckpoint.OffloadFolder, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := train.New(context.Background(), c, train.Options{Model: tiny(device.Float32)})
	var bad *train.ConfigError
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "activation_checkpoint.offload_folder") {
		t.Errorf("error %v", err)
	}
}
