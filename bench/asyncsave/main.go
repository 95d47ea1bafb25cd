// Command asyncsave measures what saving the state costs a training step.
//
//	go run ./bench/asyncsave --config configs/quickstart.toml
//	go run ./bench/asyncsave --config configs/llama3_debug.toml --json
//
// One run makes blocks of steps in turns: without saving, with asynchronous saves and
// with synchronous ones. In a block that saves, a save begins before every --every-th
// step; it counts as a part of that step's time, as do all steps while an asynchronous
// save is in flight. It prints the median and the 99th percentile of the step times and
// their ratio to those without saving. Arguments behind the flags are overrides of the
// config: --section.key=value.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/lethe-go/lethe/bench/internal/command"
	"github.com/lethe-go/lethe/bench/internal/quantile"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/train"
)

func main() { command.Main("asyncsave", run) }

// Result is what one run measured. Times are in milliseconds.
type Result struct {
	Model      string `json:"model"`
	StateBytes int64  `json:"state_bytes"`
	Threads    int    `json:"threads"`
	// Every is the number of steps from one save to the next.
	Every int   `json:"every"`
	Rows  []Row `json:"rows"`
	// HoldP50 and HoldMax are how long SaveAsync held up a step, and WriteP50 how long
	// a state was being written behind it.
	HoldP50  float64 `json:"hold_p50_ms"`
	HoldMax  float64 `json:"hold_max_ms"`
	WriteP50 float64 `json:"write_p50_ms"`
}

// Row is one way to save.
type Row struct {
	Saving   string  `json:"saving"`
	Steps    int     `json:"steps"`
	InFlight int     `json:"steps_in_flight"` // of them, beside a save
	Saves    int     `json:"saves"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	RatioP50 float64 `json:"ratio_p50"`
	RatioP99 float64 `json:"ratio_p99"`
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("asyncsave", flag.ContinueOnError)
	flags.SetOutput(log)
	path := flags.String("config", "configs/quickstart.toml", "`file` of the run")
	blocks := flags.Int("blocks", 8, "blocks of each kind")
	block := flags.Int("steps", 40, "steps in a block")
	every := flags.Int("every", 20, "steps from one save to the next")
	asJSON := flags.Bool("json", false, "print one JSON object")
	folder := flags.String("folder", "", "`folder` on the disk to measure; without it a temporary one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *blocks < 1 || *block < 1 || *every < 1 {
		return fmt.Errorf("--blocks %d --steps %d --every %d: each must be at least 1", *blocks, *block, *every)
	}
	own, err := os.MkdirTemp(*folder, "asyncsave")
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	c, err := train.LoadConfig(*path, append(flags.Args(), "--job.dump_folder="+own, "--state.folder=state",
		"--state.keep_latest_k=2", fmt.Sprint("--training.steps=", 3**blocks**block+warmUp))...)
	if err != nil {
		return err
	}
	r, err := measure(ctx, c, *blocks, *block, *every)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	return r.print(out)
}

// warmUp steps are not measured.
const warmUp = 5

func measure(ctx context.Context, c train.Config, blocks, block, every int) (*Result, error) {
	t, err := train.New(ctx, c, train.Options{})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	m := &meter{Trainer: t, every: every}
	for range warmUp {
		if _, err := t.Step(ctx); err != nil {
			return nil, err
		}
	}
	ways := []way{{name: "none", save: func() error { return nil }}, {name: "async", save: m.saveAsync}, {name: "sync", save: m.saveSync}}
	for range blocks {
		for i := range ways {
			if err := m.block(ctx, &ways[i], block); err != nil {
				return nil, err
			}
		}
	}
	r := &Result{Model: t.Model().Name(), StateBytes: stateBytes(t.Store()), Threads: c.Training.Threads, Every: every,
		HoldP50: quantile.Milliseconds(m.holds, 0.5), HoldMax: quantile.Milliseconds(m.holds, 1), WriteP50: quantile.Milliseconds(m.writes, 0.5)}
	for _, w := range ways {
		row := Row{Saving: w.name, Steps: len(w.times), InFlight: w.inFlight, Saves: w.saves, P50: quantile.Milliseconds(w.times, 0.5), P99: quantile.Milliseconds(w.times, 0.99)}
		row.RatioP50, row.RatioP99 = row.P50/quantile.Milliseconds(ways[0].times, 0.5), row.P99/quantile.Milliseconds(ways[0].times, 0.99)
		r.Rows = append(r.Rows, row)
	}
	return r, nil
}

// way is one way to save, and what steps with it took.
type way struct {
	name            string
	save            func() error
	times           []time.Duration
	saves, inFlight int
}

// meter makes steps and takes their times.
type meter struct {
	*train.Trainer
	every         int
	saving        *train.Saving // in flight
	begun         time.Time
	holds, writes []time.Duration
}

// block makes steps in one way. What is in flight at its end is waited for: it must not
// run into the next block.
func (m *meter) block(ctx context.Context, w *way, steps int) error {
	for i := range steps {
		start := time.Now()
		if i%m.every == 0 && w.name != "none" {
			if err := w.save(); err != nil {
				return err
			}
			w.saves++
		}
		if _, err := m.Step(ctx); err != nil {
			return err
		}
		w.times = append(w.times, time.Since(start))
		if m.saving != nil {
			w.inFlight++
			if err := m.collect(); err != nil {
				return err
			}
		}
	}
	if m.saving != nil {
		err := m.saving.Wait()
		m.saving = nil
		return err
	}
	return nil
}

func (m *meter) collect() error {
	select {
	case <-m.saving.Done():
		m.writes = append(m.writes, time.Since(m.begun)) // to the end of a step
		err := m.saving.Wait()
		m.saving = nil
		return err
	default:
		return nil
	}
}

func (m *meter) saveAsync() (err error) {
	m.begun = time.Now()
	m.saving, err = m.SaveAsync()
	m.holds = append(m.holds, time.Since(m.begun))
	return err
}

func (m *meter) saveSync() error { return m.Save() }

// stateBytes is the size of parameters and moments.
func stateBytes(s *graph.Store) int64 {
	var sum int64
	for _, v := range s.Variables() {
		if v.Kind == graph.Parameter || v.Kind == graph.State {
			sum += v.Spec.Bytes()
		}
	}
	return sum
}

func (r *Result) print(out io.Writer) error {
	fmt.Fprintf(out, "%s, a state of %d bytes; a save every %d steps holds one up for %.1f ms (at most %.1f) and is written within %.0f ms\n\n",
		r.Model, r.StateBytes, r.Every, r.HoldP50, r.HoldMax, r.WriteP50)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "saving\tsteps\tin flight\tsaves\tp50 ms\tp99 ms\tp50 ratio\tp99 ratio\t")
	for _, x := range r.Rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f\t%.1f\t%.3f\t%.3f\t\n", x.Saving, x.Steps, x.InFlight, x.Saves, x.P50, x.P99, x.RatioP50, x.RatioP99)
	}
	return w.Flush()
}
