package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/train"
)

var reportCommand = command{
	name:  "report",
	usage: "RUN [RUN2] --html FILE",
	about: "write a page with the charts of a run, or of two",
	details: `RUN is the dump folder of a run. The page shows loss, gradient norm, learning rate,
throughput, MFU, memory and the load of experts. It is one file that needs no network.

Examples:
  lethe report outputs/quickstart --html quickstart.html
  lethe report outputs/a outputs/b --html both.html
`,
	run: runReport,
}

func runReport(_ context.Context, args []string, s streams) (int, error) {
	var folders []string
	file := ""
	for i := 0; i < len(args); i++ {
		value, inline := strings.CutPrefix(args[i], "--html=")
		switch {
		case inline:
			file = value
		case args[i] == "--html" && i+1 < len(args):
			i++
			file = args[i]
		case strings.HasPrefix(args[i], "-"):
			return 0, usagef("unknown option %s: write lethe report RUN [RUN2] --html FILE", args[i])
		default:
			folders = append(folders, args[i])
		}
	}
	if file == "" || len(folders) == 0 || len(folders) > 2 {
		return 0, usagef("report needs one or two runs and a file: write lethe report RUN [RUN2] --html FILE")
	}
	err := atomicfile.Write(atomicfile.OS, file, func(w io.Writer) error { return train.WriteReport(w, folders...) })
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(s.out, "report: %s\n", file)
	return exitDone, err
}
