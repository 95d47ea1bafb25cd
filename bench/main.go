// Command bench measures Lethe against what it can be held against, and prints one table of
// ratios.
//
//	go run -tags openblas ./bench --python PATH
//
// Each row is a kernel or a whole training step, a peer and a number of threads; the ratio
// is how many times faster Lethe is than the peer or, in the rows of memory, how many times
// as much the peer takes. Peers are
//
//	fma_peak              the rate of fused multiply-adds of that many threads
//	openblas              OpenBLAS, with as many threads of its own; needs -tags openblas
//	pytorch_eager         PyTorch with the allocator told to keep its memory
//	pytorch_compile       the same with torch.compile
//	pytorch_as_installed  PyTorch without that
//
// and for those of PyTorch, --python names a Python that has it. Lethe and the peer take
// turns, and a row is the median of the ratios of all turns: on a machine that others use
// too, times of one minute cannot be compared with those of the next. Of kernels, the
// fastest of the calls in a turn counts; of training steps, the median of the steps.
//
// --json prints an object for each row, --run takes only the rows whose name fits, and
// --profile prints instead where the time of a step goes, of a config file or of a row:
// --profile "mid_dense 1x512".
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/lethe-go/lethe/bench/internal/command"
)

func main() { command.Main("bench", run) }

// options of a run.
type options struct {
	python  string
	threads []int
	repeats int
	only    *regexp.Regexp
}

// wants reports whether a row is asked for.
func (o options) wants(name string) bool { return o.only.MatchString(name) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(log)
	asJSON := flags.Bool("json", false, "print one JSON object for each row")
	python := flags.String("python", "", "`path` of a Python with torch; without it PyTorch is left out")
	threads := flags.String("threads", "1,2", "numbers of threads, with commas between them")
	repeats := flags.Int("repeats", 5, "turns of Lethe and the peer for each row")
	only := flags.String("run", "", "only rows whose name this `regexp` matches")
	profile := flags.String("profile", "", "print where the time of a step of this `config` or row goes, and nothing else; what follows are overrides")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := options{python: *python, repeats: *repeats}
	var err error
	if o.threads, err = parseThreads(*threads); err != nil {
		return err
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	if *repeats < 1 {
		return fmt.Errorf("--repeats %d: want at least 1", *repeats)
	}
	if *profile != "" {
		return profileSteps(ctx, *profile, o.threads, flags.Args(), out)
	}
	if len(flags.Args()) > 0 {
		return fmt.Errorf("unknown arguments %q: overrides of a config go with --profile", flags.Args())
	}
	t := newTable(out, *asJSON)
	for _, suite := range []func(context.Context, options, *table) error{benchGemm, benchAttention, benchSteps, benchMemory} {
		if err := suite(ctx, o, t); err != nil {
			return err
		}
	}
	return nil
}

func parseThreads(list string) (threads []int, err error) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--threads %q: want positive numbers, as in 1,2", list)
		}
		threads = append(threads, n)
	}
	return threads, nil
}
