package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/lethe-go/lethe/internal/statusline"
)

// notify returns a context that the first SIGINT or SIGTERM ends, with the
// signal's name as cause. The second one ends the process.
func notify(stderr io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	erase := "" // the progress bar
	if _, ok := statusline.Terminal(stderr); ok {
		erase = statusline.Erase
	}
	go func() {
		for first := true; ; first = false {
			select {
			case s := <-signals:
				if !first {
					io.WriteString(stderr, erase)
					os.Exit(exitFailed)
				}
				fmt.Fprintf(stderr, erase+"lethe: %v: stopping after this step; a second signal ends at once, without saving\n", s)
				cancel(fmt.Errorf("signal: %v", s))
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
