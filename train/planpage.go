package train

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/lethe-go/lethe/internal/page"
)

// WriteHTML writes a page about the plan of a config: the modes side by side, the memory
// of forward and backward over the steps of their schedule at the bounds of dynamic rows,
// what holds the peak, what ranks send each other, and who decided. The page needs no
// network.
func (r *PlanReport) WriteHTML(w io.Writer, c Config) error {
	p := page.Page{Title: "Lethe plan: " + r.Model.Name(), Summary: fmt.Sprintf("%s parameters, %s; %d × %d tokens a microbatch; activation_checkpoint.mode=%s; %s are persistent in every mode",
		groupThousands(float64(r.Model.Parameters()), 0), c.Training.DType, c.Training.LocalBatchSize, c.Training.SeqLen, c.ActivationCheckpoint.Mode, formatBytes(r.PersistentBytes))}
	p.Sections = append(p.Sections, page.Section{Title: "Modes", Lines: []page.Lines{r.frontier()}, Tables: []page.Table{r.modeTable()}})
	if r.Program != nil {
		p.Sections = append(p.Sections, memorySection(r.Program))
		if t := trafficTable(r.Program); len(t.Rows) > 0 {
			p.Sections = append(p.Sections, page.Section{Title: "Traffic between ranks", Tables: []page.Table{t}})
		}
	}
	p.Sections = append(p.Sections, page.Section{Title: "Decisions", Tables: []page.Table{decisionTable(r.Explanation)}})
	return p.Write(w)
}

func (r *PlanReport) modeTable() page.Table {
	t := page.Table{Caption: "Every mode and budget; costs of operations: " + filepath.Base(r.Costs), Columns: []string{"mode", "budget", "saved", "offloaded", "peak", "arena", "in all", "recomputed", "of forward", "of its time", "no plan below", "gap"}}
	for i, x := range r.Rows {
		mode, budget, bound, gap := x.Mode, "–", "–", "–"
		if i == r.Own {
			mode += ", this config's"
		}
		if w := x.Within; w != nil {
			budget, bound, gap = formatBytes(w.BudgetBytes), percent(w.BoundPct), percent(w.GapPct)
		}
		t.Rows = append(t.Rows, []string{mode, budget, formatBytes(x.SavedBytes), formatBytes(x.OffloadedBytes), formatBytes(x.PeakBytes), formatBytes(x.ArenaBytes), formatBytes(x.TotalBytes),
			formatFLOPs(x.RecomputedFLOPs), percent(x.RecomputedPct), percent(x.RecomputedTimePct), bound, gap})
	}
	return t
}

// frontier holds the memory of each mode and budget against the time of what it computes
// again, and against what no plan undercuts.
func (r *PlanReport) frontier() page.Lines {
	rows := slices.SortedStableFunc(slices.Values(r.Rows), func(a, b PlanRow) int { return cmp.Compare(a.TotalBytes, b.TotalBytes) })
	unit, name := byteUnit(rows[len(rows)-1].TotalBytes)
	modes, budgets, bound := page.Series{Name: "mode", Points: []string{}}, page.Series{Name: "budget", Points: []string{}, Below: true}, page.Series{Name: "lower bound"}
	for _, x := range rows {
		s, text := &modes, x.Mode
		if x.Within != nil {
			s, text = &budgets, fmt.Sprintf("%.3g", float64(x.BudgetBytes)/unit)
		}
		s.X, s.Y, s.Points = append(s.X, float64(x.TotalBytes)/unit), append(s.Y, x.RecomputedTimePct), append(s.Points, text)
	}
	for _, b := range r.Bounds {
		bound.X, bound.Y = append(bound.X, float64(b.BudgetBytes)/unit), append(bound.Y, b.BoundPct)
	}
	return page.Lines{Title: "Memory against recomputation", X: "memory in all, " + name, Series: []page.Series{modes, bound, budgets}, Format: percent,
		Note: "Time of what is computed again, in percent of the forward passes. No plan within a budget lies below the bound."}
}

func percent(v float64) string { return fmt.Sprintf("%.3g%%", v) }

// byteUnit is the largest binary unit of which n has one.
func byteUnit(n int64) (unit float64, name string) {
	unit, name = 1, "bytes"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if float64(n) < unit*1024 {
			break
		}
		unit, name = unit*1024, larger
	}
	return unit, name
}
