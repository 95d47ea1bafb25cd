package train

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/page"
)

// WriteHTML writes a page about the plan of a config: the modes side by side, the memory
// of forward and backward over the steps of their schedule at the bounds of dynamic rows,
// what holds the peak, and who decided. The page needs no network.
func (r *PlanReport) WriteHTML(w io.Writer, c Config) error {
	p := page.Page{Title: "Lethe plan: " + r.Model.Name(), Summary: fmt.Sprintf("%s parameters, %s; %d × %d tokens a microbatch; activation_checkpoint.mode=%s; %s are persistent in every mode",
		groupThousands(float64(r.Model.Parameters()), 0), c.Training.DType, c.Training.LocalBatchSize, c.Training.SeqLen, c.ActivationCheckpoint.Mode, formatBytes(r.PersistentBytes))}
	p.Sections = append(p.Sections, page.Section{Title: "Modes", Tables: []page.Table{r.modeTable()}})
	if r.Program != nil {
		p.Sections = append(p.Sections, page.Section{Title: "Memory over the step", Lines: []page.Lines{timeline(r.Program)}, Tables: peakTables(r.Program)})
	}
	p.Sections = append(p.Sections, page.Section{Title: "Decisions", Tables: []page.Table{decisionTable(r.Explanation)}})
	return p.Write(w)
}

func (r *PlanReport) modeTable() page.Table {
	t := page.Table{Caption: "Every mode", Columns: []string{"mode", "saved", "peak", "arena", "recomputed", "of forward"}}
	for _, x := range r.Rows {
		t.Rows = append(t.Rows, []string{x.Mode, formatBytes(x.SavedBytes), formatBytes(x.PeakBytes), formatBytes(x.ArenaBytes), formatFLOPs(x.RecomputedFLOPs), fmt.Sprintf("%.1f%%", x.RecomputedPct)})
	}
	return t
}

// timeline is the bytes alive at each step of the schedule.
func timeline(p *graph.Program) page.Lines {
	alive, saved := page.Series{Name: "alive"}, page.Series{Name: "saved for backward"}
	carried := p.LiveSavedBytes(nil)
	for i, n := range p.LiveBytes(nil) {
		x := float64(i)
		alive.X, alive.Y = append(alive.X, x), append(alive.Y, float64(n))
		saved.X, saved.Y = append(saved.X, x), append(saved.Y, float64(carried[i]))
	}
	return page.Lines{Title: "Arena", Note: "Bytes alive, step by step of the schedule.", X: "step of the schedule", Series: []page.Series{alive, saved},
		Format: func(v float64) string { return formatBytes(int64(v)) },
		Label: func(x float64) string {
			i := int(x)
			if i == 0 || i > len(p.Steps) {
				return "inputs and outputs"
			}
			s := p.Steps[i-1]
			return fmt.Sprintf("%s %s %s · %s", category(s, false), s.Node.Name, joinSpecs(s.Node.Out), s.Node.Source)
		}}
}

// peakTables tell what is alive where most is.
func peakTables(p *graph.Program) []page.Table {
	live := p.LiveBytes(nil)
	at := slices.Index(live, slices.Max(live))
	var held []*graph.Storage
	classes, regions, kinds := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, s := range p.Storages {
		if s.Begin > at || s.End < at {
			continue
		}
		held = append(held, s)
		n, region := s.Edge.Node, "outside of regions"
		if n.Region != nil {
			region = n.Region.Scope
		}
		classes[storageClass(s)] += s.Bytes()
		regions[region] += s.Bytes()
		kinds[n.Kind] += s.Bytes()
	}
	slices.SortStableFunc(held, func(a, b *graph.Storage) int { return cmp.Compare(b.Bytes(), a.Bytes()) })
	const most = 100
	largest := page.Table{Caption: fmt.Sprintf("The largest of %d values alive at the peak, step %d of %d", len(held), at, len(p.Steps)), Columns: []string{"node", "kind", "value", "shape", "bytes", "source"}}
	for _, s := range held[:min(most, len(held))] {
		n := s.Edge.Node
		shape := s.Edge.Spec().String()
		if s.Workspace() {
			shape = "–"
		}
		largest.Rows = append(largest.Rows, []string{n.Name, n.Kind, storageClass(s), shape, formatBytes(s.Bytes()), n.Source})
	}
	return []page.Table{sumTable("At the peak, by use", classes), sumTable("At the peak, by region", regions), sumTable("At the peak, by operation", kinds), largest}
}

func storageClass(s *graph.Storage) string {
	switch {
	case s.Workspace():
		return "workspace"
	case s.Saved:
		return "saved for backward"
	case s.Rerun:
		return "rerun"
	case s.Edge.Node.Phase == graph.Forward:
		return "forward"
	}
	return "backward"
}

// sumTable lists sums of bytes, the largest first.
func sumTable(caption string, sums map[string]int64) page.Table {
	t := page.Table{Caption: caption, Columns: []string{"", "bytes", "share"}}
	var all int64
	for _, n := range sums {
		all += n
	}
	names := slices.SortedFunc(maps.Keys(sums), func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	for _, name := range names {
		t.Rows = append(t.Rows, []string{name, formatBytes(sums[name]), fmt.Sprintf("%.1f%%", 100*float64(sums[name])/float64(max(all, 1)))})
	}
	return t
}

// decisionTable sums the explanation over values of one region, operation, fate and
// decider.
func decisionTable(r checkpoint.Report) page.Table {
	type key struct{ region, kind, fate, by string }
	type sum struct {
		values int
		bytes  int64
		flops  float64
	}
	var order []key
	sums := map[key]*sum{}
	for _, l := range r.Lines {
		k := key{"outside of regions", l.Node.Kind, l.Fate.String(), l.Entry.Why}
		if l.Fate == checkpoint.Shared {
			continue
		}
		if l.Node.Region != nil {
			k.region = l.Node.Region.Scope
		}
		if sums[k] == nil {
			sums[k] = &sum{}
			order = append(order, k)
		}
		s := sums[k]
		s.values, s.bytes, s.flops = s.values+1, s.bytes+l.Bytes, s.flops+l.FLOPs
	}
	t := page.Table{Caption: "What becomes of forward values, and who decided", Columns: []string{"region", "operation", "values", "fate", "bytes", "one run", "decided by"}}
	for _, k := range order {
		s := sums[k]
		t.Rows = append(t.Rows, []string{k.region, k.kind, fmt.Sprint(s.values), k.fate, formatBytes(s.bytes), formatFLOPs(s.flops), k.by})
	}
	return t
}
