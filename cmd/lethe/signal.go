package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/lethe-go/lethe/internal/statusline"
)

// lastWords is what a command does when it is ended at once.
type lastWords struct {
	mu  sync.Mutex
	say func(cause error)
}

func (l *lastWords) set(say func(cause error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say = say
}

func (l *lastWords) speak(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.say != nil {
		l.say(cause)
	}
}

// notify returns a context that the first of the stopSignals ends, with the signal's name
// as cause. The second one ends the process, with its last words.
func notify(stderr io.Writer, last *lastWords) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, stopSignals...)
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
					last.speak(fmt.Errorf("a second signal: %v", s))
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
