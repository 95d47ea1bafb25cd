// Command planner prints how good the plans of byte budgets are, and how long they take.
//
//	go run ./bench/planner
//	go run ./bench/planner -model "llama3 8B"
//
// A budget is a share of what saving everything adds to the peak of the smallest plan.
// Costs are those of checkpoint.DefaultCosts; times are in percent of the forward pass.
// bound_pct is undercut by no plan that reruns each node once, right before backward
// needs it; any_pct by none under any schedule. seconds are those of making the planner,
// which all budgets share, and of one plan.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lethe-go/lethe/bench/internal/command"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/modelgraph"
)

func main() { command.Main("planner", run) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("planner", flag.ContinueOnError)
	flags.SetOutput(log)
	only := flags.String("model", "", "plan this model alone")
	if err := flags.Parse(args); err != nil {
		return err
	}
	models := append(modelgraph.Debug(), modelgraph.Large()...)
	if *only != "" {
		i := slices.IndexFunc(models, func(m modelgraph.Model) bool { return m.Name == *only })
		if i < 0 {
			var names []string
			for _, m := range models {
				names = append(names, strconv.Quote(m.Name))
			}
			return fmt.Errorf("no model %q: want one of %s", *only, strings.Join(names, ", "))
		}
		models = models[i : i+1]
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush() // of the models before one that fails, too
	fmt.Fprintln(w, "model\tops\tbudget\tpeak_bytes\trecomputed_pct\tbound_pct\tgap_pct\tany_pct\tseconds\t")
	for _, m := range models {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := plan(w, m); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

func plan(w io.Writer, m modelgraph.Model) error {
	dev, err := cpu.New(cpu.Options{Workers: 2})
	if err != nil {
		return err
	}
	defer dev.Close()
	g, err := m.Graph(dev, checkpoint.Budget())
	if err != nil {
		return err
	}
	costs := checkpoint.DefaultCosts()
	var forward int64
	for _, n := range g.Nodes {
		if n.Phase == graph.Forward {
			forward += costs.Nanoseconds(n)
		}
	}
	begin := time.Now()
	p, err := checkpoint.NewPlanner(g, checkpoint.Options{}, costs)
	if err != nil {
		return err
	}
	prepared := time.Since(begin)
	least, err := p.Smallest()
	if err != nil {
		return err
	}
	none, err := graph.Rehearse(g, graph.SaveAll(g), nil)
	if err != nil {
		return err
	}
	pct := func(nanoseconds int64) float64 { return 100 * float64(nanoseconds) / float64(forward) }
	for _, share := range []int64{0, 10, 25, 50, 75, 100} {
		budget := least.PeakBytes + (none-least.PeakBytes)*share/100
		begin := time.Now()
		q, err := p.Plan(budget)
		if err != nil {
			return err
		}
		seconds := (prepared + time.Since(begin)).Seconds()
		fmt.Fprintf(w, "%s\t%d\t%d%%\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t\n", m.Name, len(g.Nodes), share, q.PeakBytes, pct(q.RerunNanoseconds),
			pct(q.BoundNanoseconds), pct(q.RerunNanoseconds-q.BoundNanoseconds), pct(p.AnySchedule(q.PeakBytes)), seconds)
	}
	return nil
}
