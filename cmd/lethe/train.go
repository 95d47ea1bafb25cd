package main

import (
	"context"
	"errors"
	"os"

	"github.com/lethe-go/lethe/train"
)

var trainCommand = command{
	name:  "train",
	usage: "--config FILE [--section.key=value …]",
	about: "train a model; resume if a state exists",
	details: `Writes to job.dump_folder: config.toml, metrics.jsonl with a line for every
logged step, states and, if the config says so, event files for TensorBoard
(metrics.enable_tensorboard) and traces for Perfetto (profiling.enable_profiling).
On a terminal a bar shows the progress below the lines. If there is a state, training goes on from the newest
complete one. SIGINT, SIGTERM and SIGUSR2 end it after the step, with the state saved.
SIGUSR1 has it write what holds memory at that moment, into the folder memory.
With metrics.http=:8080 the run shows itself at http://127.0.0.1:8080/ while it is on.

With parallelism.backend = "mpi" the ranks are processes, of which one reports: start as
many as the product of the degrees of parallelism, with mpirun or srun, a
lethe that was built with -tags mpi.

Every key of the config can be overridden.

Examples:
  lethe train --config configs/quickstart.toml
  lethe train --config configs/quickstart.toml --training.dataset=my.txt --job.dump_folder=outputs/mine
  lethe train --config configs/llama3_debug.toml --activation_checkpoint.mode=full --training.threads=1
  mpirun -n 2 lethe train --config configs/deepseek_v3_debug.toml --parallelism.backend=mpi --parallelism.expert_parallel_degree=2
`,
	run: runTrain,
}

func runTrain(ctx context.Context, args []string, s streams) (int, error) {
	a, err := parseConfigArgs(args, nil, nil)
	if err != nil {
		return 0, err
	}
	c, err := a.load()
	if err != nil {
		return 0, err
	}
	t, err := train.New(ctx, c, train.Options{Log: s.out, Stuck: func(err error) { os.Exit(fail(s.err, err)) }})
	if err != nil {
		return 0, err
	}
	defer t.Close()
	s.answers.set(func(cause error) { _ = t.Record(cause) }, t.Snapshot) // nobody is left to tell of an error
	defer s.answers.set(nil, nil)
	err = t.Run(ctx)
	if errors.Is(err, train.ErrStopped) && !t.Leads() {
		return exitStopped, nil // one process says it for all
	}
	return exitDone, err
}
