package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"

	"github.com/lethe-go/lethe/internal/statusline"
)

// answers are what a command has to say to signals that do not end it in order.
type answers struct {
	mu sync.Mutex
	// lastWords are spoken when it is ended at once.
	lastWords func(cause error)
	// snapshot writes what holds memory now.
	snapshot func(cause string) (path string, err error)
}

func (a *answers) set(lastWords func(error), snapshot func(string) (string, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastWords, a.snapshot = lastWords, snapshot
}

func (a *answers) end(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lastWords != nil {
		a.lastWords(cause)
	}
}

func (a *answers) ask(cause string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.snapshot == nil {
		return "no run holds memory now"
	}
	path, err := a.snapshot(cause)
	if err != nil {
		return err.Error()
	}
	return "what holds memory now is in " + path
}

// notify returns a context that the first of the stopSignals ends, with the signal's name
// as cause. The second one ends the process, with its last words. A snapshotSignal ends
// nothing.
func notify(stderr io.Writer, a *answers) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, slices.Concat(stopSignals, snapshotSignals)...)
	done := make(chan struct{})
	erase := "" // the progress bar
	if _, ok := statusline.Terminal(stderr); ok {
		erase = statusline.Erase
	}
	go func() {
		for first := true; ; {
			select {
			case s := <-signals:
				switch {
				case slices.Contains(snapshotSignals, s):
					fmt.Fprintf(stderr, erase+"lethe: %v: %s\n", s, a.ask(fmt.Sprintf("signal: %v", s)))
				case first:
					fmt.Fprintf(stderr, erase+"lethe: %v: stopping after this step; a second signal ends at once, without saving\n", s)
					cancel(fmt.Errorf("signal: %v", s))
					first = false
				default:
					io.WriteString(stderr, erase)
					a.end(fmt.Errorf("a second signal: %v", s))
					os.Exit(exitFailed)
				}
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
