package main

import (
	"context"

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
complete one. SIGINT and SIGTERM end it after the step, with the state saved.

Every key of the config can be overridden.

Examples:
  lethe train --config configs/quickstart.toml
  lethe train --config configs/quickstart.toml --training.dataset=my.txt --job.dump_folder=outputs/mine
  lethe train --config configs/llama3_debug.toml --activation_checkpoint.mode=full --training.threads=1
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
	t, err := train.New(ctx, c, train.Options{Log: s.out})
	if err != nil {
		return 0, err
	}
	defer t.Close()
	return exitDone, t.Run(ctx)
}
