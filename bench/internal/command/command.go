// Package command is what the main functions of benchmarks have in common.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Run is a benchmark, called with the arguments behind the command's name. It prints its results on out and all
// else on log, and returns early when the context ends.
type Run func(ctx context.Context, args []string, out, log io.Writer) error

// Main runs a benchmark as the whole of a command, until it is interrupted or terminated, and
// exits with 1 if there is an error.
func Main(name string, run Run) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
