package main

import (
	"fmt"
	"io"
	"slices"
)

func wantsHelp(arg string) bool {
	return slices.Contains([]string{"help", "-h", "-help", "--help"}, arg)
}

func help(w io.Writer) {
	fmt.Fprint(w, "lethe trains transformers and decides, for every value of the forward pass, whether to\nkeep it or to compute it again.\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  lethe %-8s %s\n", c.name, c.about)
	}
	fmt.Fprint(w, "\nlethe help COMMAND tells more. Begin with: lethe train --config configs/quickstart.toml\n\nExit codes: 0 done, 1 failed, 2 bad usage or config, 3 stopped by a signal with the state\nsaved.\n")
}

func helpOn(names []string, stdout, stderr io.Writer) int {
	if len(names) == 0 {
		help(stdout)
		return exitDone
	}
	c, ok := lookup(names[0])
	if !ok {
		return fail(stderr, unknownCommand(names[0]))
	}
	c.help(stdout)
	return exitDone
}

func (c command) help(w io.Writer) {
	fmt.Fprintf(w, "usage: lethe %s %s\n\n%s.\n\n%s", c.name, c.usage, c.about, c.details)
}
