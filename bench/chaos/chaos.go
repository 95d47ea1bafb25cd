package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lethe-go/lethe/train"
)

// chaos is one experiment: a peaceful run and a disturbed one.
type chaos struct {
	lethe     string // the binary
	config    string
	overrides []string
	folder    string // of both runs
	steps     int
	interval  int
	from, to  time.Duration // life of a process
	seed      uint64
	out       io.Writer
}

// exitStopped is lethe's exit code for a run that a signal ended with its state saved.
const exitStopped = 3

// hopeless is how many processes in a row may leave no newer state behind.
const hopeless = 10

func (c *chaos) run(ctx context.Context) (equal bool, err error) {
	peace, war := filepath.Join(c.folder, "undisturbed"), filepath.Join(c.folder, "disturbed")
	start := time.Now()
	p, err := c.start(ctx, peace)
	if err != nil {
		return false, err
	}
	if code := p.wait(); code != 0 {
		return false, fmt.Errorf("the undisturbed run exits with %d: %s", code, p.log)
	}
	c.say("undisturbed: %d steps in %s", c.steps, short(time.Since(start)))
	if err := c.disturb(ctx, war); err != nil {
		return false, err
	}
	report, err := train.Compare(peace, war)
	if err != nil {
		return false, err
	}
	c.say("%v", report)
	if report.Steps != c.steps || report.StateStep != c.steps {
		return false, fmt.Errorf("%d steps and the state of step %d are compared, want %d", report.Steps, report.StateStep, c.steps)
	}
	return report.Equal(), nil
}

// disturb ends processes until one has done what was left.
func (c *chaos) disturb(ctx context.Context, folder string) error {
	random := rand.New(rand.NewPCG(c.seed, 0))
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}
	begun, state, idle := time.Now(), 0, 0
	counts := map[syscall.Signal]int{}
	for i := 0; ; i++ {
		p, err := c.start(ctx, folder)
		if err != nil {
			return err
		}
		life := c.from + time.Duration(random.Int64N(int64(c.to-c.from)+1))
		select {
		case <-p.ended:
			if code := p.wait(); code != 0 {
				return fmt.Errorf("process %d, which nobody disturbed, exits with %d: %s", i+1, code, p.log)
			}
			c.say("disturbed:   process %d has done the last of %d steps, after %d SIGKILL and %d SIGTERM in %s",
				i+1, c.steps, counts[syscall.SIGKILL], counts[syscall.SIGTERM], short(time.Since(begun)))
			return nil
		case <-time.After(life):
		}
		s := signals[i%len(signals)]
		sent := time.Now()
		if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		code := p.wait()
		// 0: it was done when the signal came.
		if s == syscall.SIGTERM && code != exitStopped && code != 0 {
			return fmt.Errorf("process %d exits with %d after SIGTERM, want %d: %s", i+1, code, exitStopped, p.log)
		}
		counts[s]++
		reported, newest, err := progress(folder)
		if err != nil {
			return err
		}
		c.say("disturbed:   process %d: %v after %s, ended %s later: %d steps reported, newest state %d", i+1, name(s), short(life), short(time.Since(sent)), reported, newest)
		if idle++; newest > state {
			state, idle = newest, 0
		}
		if idle == hopeless {
			return fmt.Errorf("%d processes in a row saved nothing new; let them live longer or save more often", idle)
		}
	}
}

// progress is the last step in the metrics of a run and that of its newest state.
func progress(folder string) (reported, newest int, err error) {
	lines, err := train.ReadMetrics(filepath.Join(folder, train.MetricsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, err
	}
	if len(lines) > 0 {
		reported = lines[len(lines)-1].Step
	}
	steps, err := train.StateFolder{Path: filepath.Join(folder, "state")}.Steps()
	if len(steps) > 0 {
		newest = steps[len(steps)-1]
	}
	return reported, newest, err
}

// process is a running lethe train.
type process struct {
	cmd   *exec.Cmd
	log   string // file of what it prints
	ended chan struct{}
}

func (c *chaos) start(ctx context.Context, folder string) (*process, error) {
	p := &process{log: folder + ".log", ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"train", "--config", c.config, "--job.dump_folder=" + folder, "--state.folder=state",
		fmt.Sprint("--training.steps=", c.steps), fmt.Sprint("--state.interval=", c.interval), "--metrics.log_freq=1"}
	p.cmd = exec.CommandContext(ctx, c.lethe, append(args, c.overrides...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// wait returns the exit code, -1 for a killed process.
func (p *process) wait() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

func (c *chaos) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

func short(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }

func name(s syscall.Signal) string {
	if s == syscall.SIGKILL {
		return "SIGKILL"
	}
	return "SIGTERM"
}
