// Command lethe trains transformers. See lethe help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lethe-go/lethe/train"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2 // bad usage, config or data
	exitStopped = 3 // by a signal, with the state saved: start again to go on
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// command is one of lethe's commands.
type command struct {
	name string
	// usage is the line behind the name, about what it does in one line.
	usage, about string
	details      string
	run          func(ctx context.Context, args []string, s streams) (code int, err error)
}

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
	answers  *answers
}

var commands []command

func init() {
	commands = []command{trainCommand, planCommand, reportCommand, compareCommand, generateCommand}
}

// run executes one command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		help(stderr)
		return exitUsage
	}
	if wantsHelp(args[0]) {
		return helpOn(args[1:], stdout, stderr)
	}
	c, ok := lookup(args[0])
	if !ok {
		return fail(stderr, unknownCommand(args[0]))
	}
	for i, a := range args[1:] {
		if wantsHelp(a) && (i == 0 || a != "help") { // which may be a prompt
			c.help(stdout)
			return exitDone
		}
	}
	var a answers
	ctx, stop := notify(stderr, &a)
	defer stop()
	code, err := c.run(ctx, args[1:], streams{os.Stdin, stdout, stderr, &a})
	if err != nil {
		return fail(stderr, err)
	}
	return code
}

func lookup(name string) (command, bool) {
	for _, c := range commands {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

// usageError is a command line that cannot be followed.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func unknownCommand(name string) error {
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
	}
	return usagef("unknown command %q: the commands are %s and help", name, strings.Join(names, ", "))
}

// fail prints an error, one line for each thing that is wrong, and returns the
// exit code that tells it.
func fail(stderr io.Writer, err error) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "lethe: %s\n", line)
	}
	var usage *usageError
	var config *train.ConfigError
	switch {
	case errors.As(err, &usage), errors.As(err, &config):
		return exitUsage
	case errors.Is(err, train.ErrStopped):
		return exitStopped
	}
	return exitFailed
}
