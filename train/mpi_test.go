//go:build mpi

package train_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

// processKey is set, to the folder of the run, in the processes that TestMPI starts.
const processKey = "LETHE_MPI_TRAIN_TEST"

// On two processes any layout trains what one rank does, and what they save together loads
// on one rank.
func TestMPI(t *testing.T) {
	if folder := os.Getenv(processKey); folder != "" {
		trainAsProcess(t, folder)
		return
	}
	folder := t.TempDir()
	cmd := exec.Command("mpirun", "-n", "2", os.Args[0], "-test.run=^TestMPI$", "-test.timeout=100s")
	cmd.Env = append(os.Environ(), processKey+"="+folder,
		// More processes than processors, by whatever user runs the tests.
		"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for replicas := 1; replicas <= 2; replicas++ {
		c := onProcesses(t, replicas, 3-replicas, folder)
		c.Parallelism = train.DefaultConfig().Parallelism
		c.Training.GlobalBatchSize = 8
		r := newTrainer(t, c, train.Options{Model: latent(device.Float64)})
		if r.Steps() != 2 {
			t.Errorf("%d replicas: the state that loads on one rank is of step %d, want 2", replicas, r.Steps())
		}
		steps(t, r, 1)
	}
}

// onProcesses is onRanks with processes that share a folder.
func onProcesses(t testing.TB, replicas, experts int, folder string) train.Config {
	c := onRanks(t, replicas, experts)
	c.Job.DumpFolder = fmt.Sprintf("%s/%d-%d", folder, replicas, experts)
	c.Parallelism.Backend = "mpi"
	c.Training.DType = "float64"
	c.Training.LocalBatchSize, c.Training.Threads = 2, 1
	c.State.Enable = true
	c.Comm.InitTimeout, c.Comm.TrainTimeout = train.Duration(time.Minute), train.Duration(time.Minute)
	return c
}

// trainAsProcess is the part of one process.
func trainAsProcess(t *testing.T, folder string) {
	alone := onRanks(t, 1, 1)
	alone.Training.DType, alone.Training.LocalBatchSize = "float64", 2
	want := steps(t, newTrainer(t, alone, train.Options{Model: latent(device.Float64)}), 2)
	w, err := mpi.Init(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for replicas := 1; replicas <= 2; replicas++ {
		c := onProcesses(t, replicas, 3-replicas, folder)
		r := newTrainer(t, c, train.Options{Model: latent(device.Float64), World: w})
		got := steps(t, r, 2)
		for i := range got {
			name := fmt.Sprintf("%d replicas, step %d: ", replicas, i+1)
			near(t, name+"loss", []float64{got[i].Loss}, []float64{want[i].Loss}, 1e-10)
			near(t, name+"gradient norm", []float64{got[i].GradNorm}, []float64{want[i].GradNorm}, 1e-10)
			if got[i].Tokens != want[i].Tokens || got[i].Valid != want[i].Valid {
				t.Errorf("%s%+v, want %+v", name, got[i], want[i])
			}
		}
		if err := r.Save(); err != nil {
			t.Error(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
