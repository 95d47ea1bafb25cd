//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lethe-go/lethe/train"
)

// job is a run of lethe train under mpirun.
type job struct {
	folder    string
	cmd       *exec.Cmd
	ended     chan struct{} // mpirun has
	apart     *namespaces   // nil if all are in one place
	processes map[int]int   // by rank, seen at the last look
}

// folderKey is set, to the folder of the job, in all of its processes.
const folderKey = "LETHE_FAULTS"

func (b *bench) start(ctx context.Context, x experiment) (j *job, err error) {
	j = &job{folder: filepath.Join(b.folder, x.name), ended: make(chan struct{}), processes: map[int]int{}}
	if err := os.Mkdir(j.folder, 0o777); err != nil {
		return nil, err
	}
	command := []string{"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", fmt.Sprint(x.ranks)}
	if x.apart {
		if j.apart, err = newNamespaces(j.folder); err != nil {
			return nil, err
		}
		command = j.apart.launcher(command)
	}
	command = append(command, b.lethe, "train", "--config", b.config, "--job.dump_folder="+j.folder,
		"--parallelism.backend=mpi", fmt.Sprint("--parallelism.expert_parallel_degree=", x.ranks), fmt.Sprint("--comm.train_timeout=", b.timeout),
		"--training.steps=1000000", "--training.seq_len=64", "--training.local_batch_size=1", "--training.threads=1", "--state.enable=false", "--metrics.log_freq=1")
	log, err := os.Create(filepath.Join(j.folder, "log"))
	if err != nil {
		return nil, errors.Join(err, j.close())
	}
	defer log.Close()
	j.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	j.cmd.Env = append(os.Environ(), folderKey+"="+j.folder)
	j.cmd.Stdout, j.cmd.Stderr = log, log
	if err := j.cmd.Start(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	go func() {
		defer close(j.ended)
		_ = j.cmd.Wait()
	}()
	return j, nil
}

// output of the job so far.
func (j *job) output() string {
	text, _ := os.ReadFile(filepath.Join(j.folder, "log"))
	return string(text)
}

// awaitSteps returns the last step that was reported once there are n.
func (j *job) awaitSteps(ctx context.Context, n int) (last int, err error) {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		lines, err := train.ReadMetrics(filepath.Join(j.folder, train.MetricsFile))
		if err == nil && len(lines) >= n {
			j.look()
			return lines[len(lines)-1].Step, nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-j.ended:
			return 0, fmt.Errorf("mpirun has ended before %d steps were done:\n%s", n, j.output())
		default:
		}
		if time.Since(begin) > time.Minute {
			return 0, fmt.Errorf("%d steps take more than a minute:\n%s", n, j.output())
		}
	}
}

// look finds the processes of the ranks.
func (j *job) look() {
	clear(j.processes)
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range entries {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(folderKey+"="+j.folder+"\x00")) {
			continue
		}
		id, _ := strconv.Atoi(strings.Split(path, "/")[2])
		for variable := range bytes.SplitSeq(text, []byte{0}) {
			if number, is := bytes.CutPrefix(variable, []byte("OMPI_COMM_WORLD_RANK=")); is {
				rank, _ := strconv.Atoi(string(number))
				j.processes[rank] = id
			}
		}
	}
}

// signal sends one to a rank.
func (j *job) signal(rank int, s syscall.Signal) error {
	id, found := j.processes[rank]
	if !found {
		return fmt.Errorf("no process of rank %d among %v", rank, j.processes)
	}
	return syscall.Kill(id, s)
}

// awaitEnd returns when a rank's process has ended, the zero Time if it has not in time.
func (j *job) awaitEnd(ctx context.Context, rank int, deadline time.Time) time.Time {
	for ; time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if j.look(); j.processes[rank] == 0 {
			return time.Now()
		}
	}
	return time.Time{}
}

// close ends what is left of the job.
func (j *job) close() error {
	if j.cmd != nil && j.cmd.Process != nil {
		j.look()
		for _, id := range j.processes {
			_ = syscall.Kill(id, syscall.SIGKILL) // it may have ended meanwhile
		}
		_ = j.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-j.ended:
		case <-time.After(5 * time.Second):
			_ = j.cmd.Process.Kill()
			<-j.ended
		}
	}
	if j.apart != nil {
		return j.apart.close()
	}
	return nil
}
