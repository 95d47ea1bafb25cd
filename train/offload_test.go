package train_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/spill"
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

// faultyDisk breaks writes and reads from a place on that lie in the second half of the file, once a
// run has come to its fifth step.
type faultyDisk struct {
	spill.Disk
	write, read func(p []byte) error // told of what is about to be written, or was read
	half        int64
	writes      sync.Map // of *atomic.Int64, by offset
}

func (d *faultyDisk) Allocate(bytes int64) error {
	d.half = max(d.half, bytes/2)
	return d.Disk.Allocate(bytes)
}

// broken reports whether what lies at an offset was written a fifth time.
func (d *faultyDisk) broken(offset int64, writes int64) bool {
	n, _ := d.writes.LoadOrStore(offset, new(atomic.Int64))
	return n.(*atomic.Int64).Add(writes) >= 5 && offset >= d.half
}

func (d *faultyDisk) WriteAt(p []byte, offset int64) (int, error) {
	if d.broken(offset, 1) && d.write != nil {
		if err := d.write(p); err != nil {
			return 0, err
		}
	}
	return d.Disk.WriteAt(p, offset)
}

func (d *faultyDisk) ReadAt(p []byte, offset int64) (int, error) {
	n, err := d.Disk.ReadAt(p, offset)
	if err == nil && d.broken(offset, 0) && d.read != nil {
		err = d.read(p)
	}
	return n, err
}

// A disk that breaks in the middle of a run ends it with an error that names the value, the
// file and what to do. The last state is whole, and the run that resumes from it equals one
// without the accident.
func TestBrokenDiskLosesNothing(t *testing.T) {
	whole := tinyConfig(t)
	whole.ActivationCheckpoint.Offload = train.StringList{"attention"}
	trainAll(t, whole)
	refuse := func(err error) func([]byte) error { return func([]byte) error { return err } }
	for name, c := range map[string]struct {
		write, read func(p []byte) error
		want        []string
		is          error
	}{
		"full":      {write: refuse(syscall.ENOSPC), want: []string{"write of ", "free space on that disk"}, is: syscall.ENOSPC},
		"worn out":  {read: refuse(syscall.EIO), want: []string{"read of ", "check that disk"}, is: syscall.EIO},
		"corrupted": {read: func(p []byte) error { p[100] ^= 4; return nil }, want: []string{"read of ", "the checksum differs", "check that disk"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := whole
			config.Job.DumpFolder = t.TempDir()
			r := newTrainer(t, config, train.Options{Disk: func(d spill.Disk) spill.Disk {
				return &faultyDisk{Disk: d, write: c.write, read: c.read}
			}})
			err := r.Run(context.Background())
			for _, want := range append(c.want, "train: step 5: graph: layers.0.attention.attention:0: ", filepath.Join(config.Job.DumpFolder, "lethe-spill-")) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v: want %q in it", err, want)
				}
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v: want %v", err, c.is)
			}
			if r.Steps() != 4 {
				t.Errorf("%d steps were made, want 4", r.Steps())
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			trainAll(t, config)
			wantEqual(t, whole, config)
		})
	}
}

// A slow disk holds steps up and changes no bit.
func TestSlowDiskTrainsTheSameBits(t *testing.T) {
	c := tinyConfig(t)
	c.ActivationCheckpoint.Offload = train.StringList{"matmul", "attention"}
	trainAll(t, c)
	slow := c
	slow.Job.DumpFolder = t.TempDir()
	o := train.Options{Disk: func(d spill.Disk) spill.Disk { return spill.Limit(d, 10e6) }}
	if err := newTrainer(t, slow, o).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, c, slow)
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
