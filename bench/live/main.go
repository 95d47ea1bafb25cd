// Command live measures what a crowd at its live page (metrics.http) costs a training step.
//
//	go run ./bench/live --config configs/quickstart.toml -- --training.threads=1
//	go run ./bench/live --connections 100 --json
//
// One run makes blocks of steps in turns: left alone and under attack by connections that
// send nothing, garbage or a request byte by byte, or do not read the answer; whoever is
// thrown out comes again. It prints the median and the 99th percentile of the step times
// and their ratio to those of steps left alone. The attackers are goroutines of the same
// process: what they do themselves counts against the server. Connections of an attack that
// ended wait in the kernel until the server takes them, at its limited rate; those of some
// four attacks fill its queue, so blocks are few and long. Arguments behind the flags are
// overrides of the config: -- --section.key=value.
package main

import (
	"bytes"
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
	"github.com/lethe-go/lethe/internal/live/livetest"
	"github.com/lethe-go/lethe/train"
)

func main() { command.Main("live", run) }

// Row is what steps took, in milliseconds.
type Row struct {
	Steps       string  `json:"steps"`
	Count       int     `json:"count"`
	Connections int     `json:"connections"`
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
	RatioP50    float64 `json:"ratio_p50"`
	RatioP99    float64 `json:"ratio_p99"`
}

// warmUp steps are not measured.
const warmUp = 5

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("live", flag.ContinueOnError)
	flags.SetOutput(log)
	path := flags.String("config", "configs/quickstart.toml", "`file` of the run")
	m := &meter{}
	flags.IntVar(&m.connections, "connections", 1000, "of the attack")
	blocks := flags.Int("blocks", 2, "blocks of each kind")
	flags.IntVar(&m.block, "steps", 200, "steps in a block")
	asJSON := flags.Bool("json", false, "print one JSON object a row")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if m.connections < 1 || *blocks < 1 || m.block < 1 {
		return fmt.Errorf("--connections %d --blocks %d --steps %d: each must be at least 1", m.connections, *blocks, m.block)
	}
	folder, err := os.MkdirTemp("", "live")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	c, err := train.LoadConfig(*path, append(flags.Args(), "--job.dump_folder="+folder, "--state.enable=false",
		"--metrics.http=127.0.0.1:0", fmt.Sprint("--training.steps=", warmUp+2**blocks*m.block))...)
	if err != nil {
		return err
	}
	t, err := train.New(ctx, c, train.Options{Log: m, Hooks: m.hooks()})
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Run(ctx); err != nil {
		return err
	}
	return printRows(out, m.rows(), *asJSON)
}

// meter takes the times of steps, and has those of every second block attacked.
type meter struct {
	connections, block int
	address            string
	attack             *livetest.Attack // that is on
	begun              time.Time
	times              [2][]time.Duration // alone, attacked
	attackers          int                // in the last attack
}

// Write finds the address of the server in what a run prints.
func (m *meter) Write(line []byte) (int, error) {
	if rest, ok := bytes.CutPrefix(line, []byte("live:    http://")); ok {
		address, _, _ := bytes.Cut(rest, []byte("/"))
		m.address = string(address)
	}
	return len(line), nil
}

// hooks around a step and what Run does with it, reports included.
func (m *meter) hooks() []train.Hook {
	return []train.Hook{
		{Priority: train.ReportPriority - 1, BeforeStep: func(_ context.Context, t *train.Trainer) error {
			if done := t.Steps() - warmUp; done >= 0 && done%m.block == 0 {
				m.turn(done / m.block % 2)
			}
			m.begun = time.Now()
			return nil
		}},
		{Priority: train.ReportPriority + 1, AfterStep: func(_ context.Context, t *train.Trainer, _ train.StepResult) error {
			if done := t.Steps() - 1 - warmUp; done >= 0 {
				way := done / m.block % 2
				m.times[way] = append(m.times[way], time.Since(m.begun))
			}
			return nil
		}, Finish: func(context.Context, *train.Trainer, error) error {
			m.turn(0)
			return nil
		}},
	}
}

// turn ends the attack of one block, or begins that of the next.
func (m *meter) turn(way int) {
	if m.attack != nil {
		m.attack.Stop()
		m.attack = nil
	}
	if way == 1 {
		m.attack = livetest.Start(m.address, m.connections)
		m.attackers = m.attack.Connections
	}
}

func (m *meter) rows() []Row {
	rows := []Row{{Steps: "left alone"}, {Steps: "under attack", Connections: m.attackers}}
	for i := range rows {
		r := &rows[i]
		r.Count, r.P50, r.P99 = len(m.times[i]), quantile.Milliseconds(m.times[i], 0.5), quantile.Milliseconds(m.times[i], 0.99)
		r.RatioP50, r.RatioP99 = r.P50/rows[0].P50, r.P99/rows[0].P99
	}
	return rows
}

func printRows(out io.Writer, rows []Row, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		for _, r := range rows {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "steps\tcount\tconnections\tp50 ms\tp99 ms\tp50 ratio\tp99 ratio\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%.2f\t%.3f\t%.3f\t\n", r.Steps, r.Count, r.Connections, r.P50, r.P99, r.RatioP50, r.RatioP99)
	}
	return w.Flush()
}
