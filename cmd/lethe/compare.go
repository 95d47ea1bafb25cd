package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/lethe-go/lethe/train"
)

var compareCommand = command{
	name:  "compare",
	usage: "RUN_A RUN_B",
	about: "find the first step and parameter in which two runs differ",
	details: `RUN_A and RUN_B are the job.dump_folder of two runs. Loss and grad_norm of every step
in metrics.jsonl are compared bit for bit, and so is every parameter and moment of the
newest state that both have. Exit code 0 if all is equal, 1 if something differs, 2 if
a run cannot be read.

Example:
  lethe train --config configs/llama3_debug.toml --activation_checkpoint.mode=none --job.dump_folder=outputs/none
  lethe train --config configs/llama3_debug.toml --activation_checkpoint.mode=full --job.dump_folder=outputs/full
  lethe compare outputs/none outputs/full
`,
	run: runCompare,
}

func runCompare(_ context.Context, args []string, s streams) (int, error) {
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			return 0, usagef("unknown option %s: write lethe compare RUN_A RUN_B", a)
		}
	}
	if len(args) != 2 {
		return 0, usagef("compare takes two runs, have %d: write lethe compare RUN_A RUN_B", len(args))
	}
	r, err := train.Compare(args[0], args[1])
	if err != nil {
		// 1 would say that the runs differ.
		return 0, &train.ConfigError{Err: err}
	}
	fmt.Fprintln(s.out, r)
	if !r.Equal() {
		return exitFailed, nil
	}
	return exitDone, nil
}
