//go:build mpi

package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/atomicfile"
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
	if out, err := launch(2, "TestMPI", folder); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, d := range processDegrees {
		c := onProcesses(t, d, folder)
		c.Parallelism = train.DefaultConfig().Parallelism
		c.Training.GlobalBatchSize = 8
		r := newTrainer(t, c, train.Options{Model: latent(device.Float64)})
		if r.Steps() != 2 {
			t.Errorf("%v: the state that loads on one rank is of step %d, want 2", d, r.Steps())
		}
		steps(t, r, 1)
	}
}

// processDegrees are layouts of two ranks that divide no rows: experts, replicas, and layers
// that both compute together.
var processDegrees = []degrees{{1, 1, 2, 1}, {2, 1, 1, 1}, {1, 1, 1, 2}}

// launch runs a test in n processes.
func launch(n int, test, folder string, env ...string) ([]byte, error) {
	cmd := exec.Command("mpirun", "-n", fmt.Sprint(n), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=100s")
	cmd.Env = append(os.Environ(), processKey+"="+folder,
		// More processes than processors, by whatever user runs the tests.
		"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	cmd.Env = append(cmd.Env, env...)
	return cmd.CombinedOutput()
}

// onProcesses is together with processes that share a folder.
func onProcesses(t testing.TB, d degrees, folder string) train.Config {
	c := together(t, d)
	c.Job.DumpFolder = filepath.Join(folder, strings.Trim(strings.ReplaceAll(fmt.Sprint(d), " ", "-"), "[]"))
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
	one := newTrainer(t, alone, train.Options{Model: latent(device.Float64)})
	want := steps(t, one, 2)
	w, err := mpi.Init(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range processDegrees {
		c := onProcesses(t, d, folder)
		r := newTrainer(t, c, train.Options{Model: latent(device.Float64), World: w})
		got := steps(t, r, 2)
		for i := range got {
			name := fmt.Sprintf("%v, step %d: ", d, i+1)
			near(t, name+"loss", []float64{got[i].Loss}, []float64{want[i].Loss}, 1e-10)
			near(t, name+"gradient norm", []float64{got[i].GradNorm}, []float64{want[i].GradNorm}, 1e-10)
			if got[i].Tokens != want[i].Tokens || got[i].Valid != want[i].Valid {
				t.Errorf("%s%+v, want %+v", name, got[i], want[i])
			}
		}
		nearParts(t, fmt.Sprintf("%v: ", d), r.Stores()[0], one.Gradients()[0])
		if err := r.Save(); err != nil {
			t.Error(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// deathKey says in which part of the fourth step rank 1 is to die.
const deathKey = "LETHE_MPI_DEATH"

// Whenever a process is killed, the other leaves a record that names it, although mpirun ends
// it, and the last state loads on one rank.
func TestMPIDeath(t *testing.T) {
	if folder := os.Getenv(processKey); folder != "" {
		dieAsProcess(t, folder, os.Getenv(deathKey))
		return
	}
	for _, when := range []string{"forward", "backward", "update", "save"} {
		t.Run(when, func(t *testing.T) {
			folder := t.TempDir()
			out, err := launch(2, "TestMPIDeath", folder, deathKey+"="+when)
			if err == nil {
				t.Fatalf("mpirun is content\n%s", out)
			}
			c := onProcesses(t, degrees{1, 1, 2, 1}, folder)
			text, err := os.ReadFile(filepath.Join(c.FlightPath(), "rank_0.json"))
			var record flight.Record
			if err == nil {
				err = json.Unmarshal(text, &record)
			}
			if err != nil || !strings.Contains(record.Cause, "rank 1, process ") || !strings.Contains(record.Cause, "has died") {
				t.Errorf("%v, cause %q\n%s", err, record.Cause, out)
			}
			c.Parallelism = train.DefaultConfig().Parallelism
			c.Training.GlobalBatchSize = 8
			if r := newTrainer(t, c, train.Options{Model: latent(device.Float64)}); r.Steps() != 2 {
				t.Errorf("the state that loads is of step %d, want 2", r.Steps())
			}
		})
	}
}

// dieAsProcess trains up to the step in which rank 1 dies.
func dieAsProcess(t *testing.T, folder, when string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := onProcesses(t, degrees{1, 1, 2, 1}, folder)
	c.State.AsyncMode = "disabled"
	o := train.Options{Model: latent(device.Float64)}
	dies := os.Getenv("OMPI_COMM_WORLD_RANK") == "1"
	die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }
	if dies {
		o.Hooks = []train.Hook{{BeforeStep: func(_ context.Context, t *train.Trainer) error {
			if t.Steps() == 3 && when != "save" {
				t.CallIn(map[string]graph.Pass{"forward": graph.ForwardPass, "backward": graph.BackwardPass, "update": graph.UpdatePass}[when], die)
			}
			return nil
		}}}
		if when == "save" {
			o = o.WithStateFS(dyingFS{atomicfile.OS, die})
		}
	}
	r := newTrainer(t, c, o)
	if err := r.Run(ctx); err == nil {
		t.Error("the run goes on without a rank")
	}
}

// dyingFS dies as it makes its file of the second state.
type dyingFS struct {
	atomicfile.FS
	die func()
}

func (f dyingFS) Create(path string) (atomicfile.File, error) {
	if strings.Contains(path, "step-00000004") {
		f.die()
	}
	return f.FS.Create(path)
}

// A process with another policy, seed or text is named before the first step.
func TestMPIDisagreement(t *testing.T) {
	if folder := os.Getenv(processKey); folder != "" {
		disagreeAsProcess(t, folder)
		return
	}
	out, err := launch(2, "TestMPIDisagreement", t.TempDir())
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func disagreeAsProcess(t *testing.T, folder string) {
	w, err := mpi.Init(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		differ func(c *train.Config)
		want   string
	}{
		{func(c *train.Config) { c.ActivationCheckpoint.Mode = "full" }, "rank 1 has activation_checkpoint.mode = 'full', rank 0 has activation_checkpoint.mode = 'selective'"},
		{func(c *train.Config) { c.Training.Seed = 7 }, "rank 1 has training.seed = 7, rank 0 has training.seed = 0"},
		{func(c *train.Config) { c.Parallelism.ExpertParallelDegree = 4 }, "rank 1 has parallelism.expert_parallel_degree = 4, rank 0 has"},
		// The config is the same, what it reads is not.
		{nil, "rank 1 has a first batch of rank 0 with hash "},
	} {
		c := onProcesses(t, degrees{1, 1, 2, 1}, folder)
		c.State.Enable = false
		o := train.Options{Model: latent(device.Float64), World: w}
		switch {
		case test.differ == nil:
			o.Dataset = &train.Dataset{Name: "counting", Train: func(ctx context.Context, rank, ranks int) (data.Batches, error) {
				return counting(2, 33, 100)(ctx, rank+w.Rank(), ranks)
			}}
		case w.Rank() == 1:
			test.differ(&c)
		}
		if _, err := train.New(context.Background(), c, o); !errors.Is(err, train.ErrDisagree) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("case %d: %v, want %q", i, err, test.want)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
