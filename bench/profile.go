package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lethe-go/lethe/internal/chrometrace"
	"github.com/lethe-go/lethe/train"
)

// Of the steps that are traced, the first are not looked at.
const profileWarmUp, profiledSteps = 2, 5

// profile is where the time of some steps went, in seconds.
type profile struct {
	threads int
	// Of all kernels by the kind of their op, without the optimizer's.
	kinds     map[string]spent
	optimizer float64
	total     float64
	working   float64 // while at least one worker was in a kernel
	peak      float64 // FLOP/s, measured before and after
}

type spent struct{ seconds, flops float64 }

// profileSteps traces steps of a workload, or of a config file, with each number of threads
// and prints the shares.
func profileSteps(ctx context.Context, subject string, threads []int, overrides []string, out io.Writer) error {
	for _, n := range threads {
		p, err := profileOf(ctx, subject, n, overrides)
		if err != nil {
			return err
		}
		if err := p.print(out); err != nil {
			return err
		}
	}
	return nil
}

func profileOf(ctx context.Context, subject string, threads int, overrides []string) (*profile, error) {
	folder, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	c, o, err := profiled(subject, append(slices.Clone(overrides), "--job.dump_folder="+folder, "--state.enable=false",
		"--profiling.enable_profiling=true", "--profiling.profile_freq=1", "--profiling.save_traces_folder=traces",
		fmt.Sprint("--training.steps=", profileWarmUp+profiledSteps), fmt.Sprint("--training.threads=", threads))...)
	if err != nil {
		return nil, err
	}
	d, err := openDevice(threads)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	o.Device = d
	t, err := train.New(ctx, c, o)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	p := &profile{threads: threads, kinds: map[string]spent{}, peak: d.PeakFLOPs()}
	if err := t.Run(ctx); err != nil {
		return nil, err
	}
	p.peak = max(p.peak, d.PeakFLOPs())
	files, err := filepath.Glob(filepath.Join(folder, "traces", "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, f := range files[profileWarmUp:] {
		if err := p.read(f); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	return p, nil
}

// profiled is the run of a workload, by its name in the rows of steps, or of a config file.
func profiled(subject string, overrides ...string) (train.Config, train.Options, error) {
	for _, w := range workloads {
		if w.name() != "step "+subject {
			continue
		}
		c, o, err := w.setUp()
		for _, s := range overrides {
			if err == nil {
				err = c.Override(s)
			}
		}
		return c, o, err
	}
	c, err := train.LoadConfig(subject, overrides...)
	return c, train.Options{}, err
}

// read adds the steps of a trace, as train's profiler writes it.
func (p *profile) read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var trace struct {
		Events []chrometrace.Event `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		return err
	}
	workers := 0 // their process
	for _, e := range trace.Events {
		if name, _ := e.Args["name"].(string); e.Name == "process_name" && strings.HasSuffix(name, " workers") {
			workers = e.Process
		}
	}
	type interval struct{ begin, end chrometrace.Time }
	var working []interval
	for _, e := range trace.Events {
		if e.Duration == nil || e.Category == "group" {
			continue
		}
		if e.Process == workers {
			working = append(working, interval{e.Time, e.Time + *e.Duration})
			continue
		}
		seconds := float64(*e.Duration) / 1e9
		p.total += seconds
		kind, _ := e.Args["kind"].(string)
		switch {
		case e.Category == "optimizer":
			p.optimizer += seconds
		case kind != "":
			flops, _ := e.Args["flops"].(float64)
			s := p.kinds[kind]
			p.kinds[kind] = spent{s.seconds + seconds, s.flops + flops}
		}
	}
	slices.SortFunc(working, func(a, b interval) int { return cmp.Compare(a.begin, b.begin) })
	var upTo chrometrace.Time
	for _, w := range working {
		if w.end > upTo {
			p.working += float64(w.end-max(w.begin, upTo)) / 1e9
			upTo = w.end
		}
	}
	return nil
}

// group is what the table calls an op.
func group(kind string) string {
	switch {
	case strings.Contains(kind, "matmul"):
		return "matrix products"
	case strings.HasPrefix(kind, "output_"):
		return "output and loss"
	case strings.HasPrefix(kind, "attention"):
		return "attention"
	}
	return "elementwise, norms, moves"
}

func (p *profile) print(out io.Writer) error {
	groups := map[string]spent{"optimizer": {seconds: p.optimizer}}
	var flops float64
	for kind, s := range p.kinds {
		g := groups[group(kind)]
		groups[group(kind)] = spent{g.seconds + s.seconds, g.flops + s.flops}
		flops += s.flops
	}
	fmt.Fprintf(out, "%d threads: %.1f ms a step, %.1f GFLOP/s executed, %.0f%% of a peak of %.1f\n", p.threads,
		1e3*p.total/profiledSteps, flops/p.total/1e9, 100*flops/p.total/p.peak, p.peak/1e9)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "part\tshare of the step\tGFLOP/s\tof peak\t")
	names := slices.SortedFunc(maps.Keys(groups), func(a, b string) int { return cmp.Compare(groups[b].seconds, groups[a].seconds) })
	for _, name := range names {
		g := groups[name]
		fmt.Fprintf(w, "%s\t%.1f%%\t", name, 100*g.seconds/p.total)
		if g.flops > 0 && name != "elementwise, norms, moves" {
			fmt.Fprintf(w, "%.1f\t%.0f%%\t", g.flops/g.seconds/1e9, 100*g.flops/g.seconds/p.peak)
		} else {
			fmt.Fprint(w, "\t\t")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "of these, no worker in a kernel\t%.2f%%\t\t\t\n", 100*(p.total-p.working)/p.total)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}
