//go:build mpi

package train_test

import (
	"bytes"
	"cmp"
	"context"
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

	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/train"
)

// processKey is set, to the folder of the run, in the processes that launch starts.
const processKey = "LETHE_MPI_TRAIN_TEST"

// launch runs a test in n processes, which see that by inProcess.
func launch(n int, test, folder string, env ...string) ([]byte, error) {
	// $MPIRUN is the launcher where several versions of MPI are installed.
	mpirun := cmp.Or(os.Getenv("MPIRUN"), "mpirun")
	cmd := exec.Command(mpirun, "-n", fmt.Sprint(n))
	if version, _ := exec.Command(mpirun, "--version").CombinedOutput(); !bytes.Contains(version, []byte("Open MPI")) {
		// MPICH's kills survivors, with their process groups, in the instant of a death.
		// UCX, below it, ends a process that reads from the memory of one that has died (cma).
		cmd.Args = append(cmd.Args, "env", "UCX_TLS=self,sysv,posix", "setsid", "--wait", "setpriv", "--pdeathsig", "TERM")
	}
	cmd.Args = append(cmd.Args, os.Args[0], "-test.run=^"+test+"$", "-test.timeout=200s")
	if testing.Verbose() {
		cmd.Args = append(cmd.Args, "-test.v")
	}
	cmd.Env = append(os.Environ(), processKey+"="+folder,
		// More processes than processors, by whatever user runs the tests.
		"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	cmd.Env = append(cmd.Env, env...)
	return cmd.CombinedOutput()
}

// inProcess returns the folder of the run in a process that launch has started.
func inProcess(t *testing.T) (folder string, is bool) {
	folder = os.Getenv(processKey)
	if folder != "" {
		t.Setenv("TMPDIR", folder) // who is killed removes nothing
	}
	return folder, folder != ""
}

// onProcesses is together with processes that share a folder.
func onProcesses(t testing.TB, d degrees, folder string) train.Config {
	c := together(t, d)
	c.Job.DumpFolder = filepath.Join(folder, strings.Trim(strings.ReplaceAll(fmt.Sprint(d), " ", "-"), "[]"))
	c.Parallelism.Backend = "mpi"
	c.Training.DType = "float64"
	c.Training.LocalBatchSize, c.Training.Threads = min(2, c.Training.GlobalBatchSize), 1
	c.State.Enable = true
	c.Comm.InitTimeout, c.Comm.TrainTimeout = train.Duration(time.Minute), train.Duration(time.Minute)
	return c
}

// On processes too any layout trains what one rank does, and what they save together loads on
// other numbers of ranks.
func TestMPI(t *testing.T) {
	if folder, is := inProcess(t); is {
		trainAsProcess(t, folder)
		return
	}
	for _, n := range []int{1, 2, 4, 8} {
		t.Run(fmt.Sprintf("%d processes", n), func(t *testing.T) {
			if n > 4 && testing.Short() {
				t.Skip("4 processes are enough for -short: more share the processors of a small machine")
			}
			folder := t.TempDir()
			out, err := launch(n, "TestMPI", folder)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("\n%s", out)
			for _, d := range processDegrees(n) {
				loadElsewhere(t, onProcesses(t, d, folder))
			}
		})
	}
}

// processDegrees are layouts of n ranks that divide no rows: replicas and experts, and layers
// that all or, beside experts, two of them compute together. TestMPIShards has the others.
func processDegrees(n int) (list []degrees) {
	for replicas, experts := range layouts {
		if replicas*experts == n {
			list = append(list, degrees{replicas, 1, experts, 1})
		}
	}
	if n == 2 || n == 4 {
		list = append(list, degrees{1, 1, 1, n})
	}
	if n == 4 {
		list = append(list, degrees{1, 1, 2, 2})
	}
	return list
}

// loadElsewhere goes on from the state of a run on ranks of this process.
func loadElsewhere(t *testing.T, c train.Config) {
	var want []float64
	for _, experts := range []int{1, 2, 4} {
		other := onRanks(t, 1, experts)
		other.Training.DType = "float64"
		other.State.InitialLoadPath, other.State.InitialLoadModelOnly = c.StatePath(), false
		r := newTrainer(t, other, train.Options{Model: latent(device.Float64)})
		if r.Steps() != 2 {
			t.Errorf("%s: the state that loads is of step %d, want 2", c.StatePath(), r.Steps())
		}
		got := []float64{steps(t, r, 1)[0].Loss}
		if want == nil {
			want = got
		}
		near(t, fmt.Sprintf("%s: the next loss on %d ranks", c.StatePath(), experts), got, want, 1e-10)
	}
}

// trainAsProcess trains all layouts of as many ranks as there are processes.
func trainAsProcess(t *testing.T, folder string) {
	w, err := mpi.Init(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, dtype := range []device.DType{device.Float32, device.Float64} {
		tolerance := 1e-5
		if dtype == device.Float64 {
			tolerance = 1e-10
		}
		for _, rows := range []int{1, 2} {
			alone := onRanks(t, 1, 1)
			alone.Training.DType, alone.Training.LocalBatchSize = dtype.String(), rows
			one := newTrainer(t, alone, train.Options{Model: latent(dtype)})
			want := steps(t, one, 1)[0]
			gradients := one.Gradients()[0]
			want2 := steps(t, one, 1)[0]
			for _, d := range processDegrees(w.Size()) {
				name := fmt.Sprintf("%v, %d rows, replicas, shards, experts, tensors %v", dtype, rows, d)
				c := onProcesses(t, d, folder)
				c.Training.DType, c.Training.LocalBatchSize = dtype.String(), min(rows, c.Training.GlobalBatchSize)
				c.State.Enable = dtype == device.Float64 && rows == 2
				r := newTrainer(t, c, train.Options{Model: latent(dtype), World: w})
				wantOneRank(t, name, steps(t, r, 1)[0], want, tolerance)
				nearParts(t, name+": ", r.Stores()[0], gradients, tolerance)
				wantOneRank(t, name+", second step", steps(t, r, 1)[0], want2, 10*tolerance)
				if c.State.Enable {
					if err := r.Save(); err != nil {
						t.Error(err)
					}
				}
				if w.Rank() == 0 {
					t.Logf("%s: %d gradients are those of one rank within %v", name, len(gradients), tolerance)
				}
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func wantOneRank(t *testing.T, name string, got, want train.StepResult, tolerance float64) {
	t.Helper()
	near(t, name+": loss", []float64{got.Loss}, []float64{want.Loss}, tolerance)
	near(t, name+": gradient norm", []float64{got.GradNorm}, []float64{want.GradNorm}, tolerance)
	if got.Tokens != want.Tokens || got.Valid != want.Valid || got.LearningRate != want.LearningRate {
		t.Errorf("%s: %+v, want %+v", name, got, want)
	}
}

// deathKey says in which part of the fourth step rank 1 is to die.
const deathKey = "LETHE_MPI_DEATH"

// Whenever a process is killed, the other leaves a record that names it, although mpirun ends
// it, and the last state loads on one rank.
func TestMPIDeath(t *testing.T) {
	if folder, is := inProcess(t); is {
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
			record, err := readRecord(c, 0)
			for begin := time.Now(); err != nil && time.Since(begin) < 10*time.Second; record, err = readRecord(c, 0) {
				time.Sleep(10 * time.Millisecond) // mpirun may end before the survivor
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
	dies := cmp.Or(os.Getenv("OMPI_COMM_WORLD_RANK"), os.Getenv("PMI_RANK")) == "1"
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
	if folder, is := inProcess(t); is {
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

// Whatever goes wrong on rank 1, both processes stop, and the record of each names it.
func TestMPIFaults(t *testing.T) {
	if folder, is := inProcess(t); is {
		failAsProcess(t, folder)
		return
	}
	if out, err := launch(2, "TestMPIFaults", t.TempDir()); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func failAsProcess(t *testing.T, folder string) {
	w, err := mpi.Init(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			c := onRanks(t, 1, 2)
			c.Job.DumpFolder, c.Parallelism.Backend = filepath.Join(folder, f.name), "mpi"
			o := f.options()
			o.World = w
			err := f.run(c, o)
			f.check(t, c, err, w.Rank())
			if w.Rank() == 1 && !errors.Is(err, f.is) {
				t.Errorf("%v does not wrap %v", err, f.is)
			}
		})
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// The memory of a process does not grow with its steps.
func TestMPIMemoryIsFlat(t *testing.T) {
	if folder, is := inProcess(t); is {
		trainFlat(t, onProcesses(t, degrees{1, 1, 2, 1}, folder))
		return
	}
	if testing.Short() {
		t.Skip("1,000 steps")
	}
	out, err := launch(2, "TestMPIMemoryIsFlat", t.TempDir())
	if err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", out)
}
