package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/page"
)

// memorySection shows the arena over the steps of a schedule, and what holds its peak.
func memorySection(p *graph.Program) page.Section {
	at := p.PeakStep(nil)
	return page.Section{Title: "Memory over the step",
		Lines: timelines(p),
		Heats: []page.Heat{
			heldMap(p, "Memory by region", func(s *graph.Storage) string { return regionOf(s.Edge.Node) }),
			heldMap(p, "Memory by operation", func(s *graph.Storage) string { return s.Edge.Node.Kind })},
		Tables: heldTables(fmt.Sprintf("at the peak, step %d of %d", at, len(p.Steps)), heldAt(p, nil, at))}
}

// timelines stack the bytes alive at each step of the schedule by what they are there for: all
// of them, and those that come and go, which are small beside what is saved and gradients.
func timelines(p *graph.Program) []page.Lines {
	by := liveBy(p, useOf)
	all := timeline(p, by, page.Lines{Title: "Arena", Note: "Bytes alive, step by step of the schedule."})
	delete(by, useSaved)
	delete(by, useGradient)
	return []page.Lines{all, timeline(p, by, page.Lines{Title: "What comes and goes", Note: "The same without what is saved for backward and gradients."})}
}

func timeline(p *graph.Program, by map[string][]int64, l page.Lines) page.Lines {
	sum := make([]int64, len(p.Steps)+2)
	for _, of := range by {
		for i := range sum {
			sum[i] += of[i]
		}
	}
	unit, name := byteUnit(slices.Max(sum))
	l.X, l.Stacked = "step of the schedule", true
	l.Format = func(v float64) string { return fmt.Sprintf("%.4g %s", v, name) }
	l.Label = func(x float64) string { return describeStep(p, int(x)) }
	l.Marks = []page.Mark{{X: float64(p.Boundary()), Text: "backward"}}
	for _, use := range []string{useSaved, useGradient, useForward, useRerun, useReloaded, useBackward, useWorkspace} {
		s := page.Series{Name: use}
		for i := range sum {
			value := 0.0
			if of := by[use]; of != nil {
				value = float64(of[i]) / unit
			}
			s.X, s.Y = append(s.X, float64(i)), append(s.Y, value)
		}
		l.Series = append(l.Series, s)
	}
	return l
}

// describeStep tells the node, its shape, bytes and source.
func describeStep(p *graph.Program, i int) string {
	if i == 0 || i > len(p.Steps) {
		return "inputs and outputs"
	}
	s := p.Steps[i-1]
	return fmt.Sprintf("%s %s %s · %s · %s", category(s, false), s.Node.Name, joinSpecs(s.Node.Out), formatBytes(s.Node.Bytes()), s.Node.Source)
}

// liveBy splits the bytes alive at each step of the schedule by a name.
func liveBy(p *graph.Program, name func(*graph.Storage) string) map[string][]int64 {
	by := map[string][]int64{}
	for _, s := range p.Storages {
		of := by[name(s)]
		if of == nil {
			of = make([]int64, len(p.Steps)+3)
			by[name(s)] = of
		}
		of[s.Begin] += s.Bytes()
		of[s.End+1] -= s.Bytes()
	}
	for _, of := range by {
		for i := 1; i < len(of); i++ {
			of[i] += of[i-1]
		}
	}
	return by
}

// mostRows of a map have a name, if they hold at least a leastShare of the peak at their
// most; the others are one row.
const (
	mostRows   = 30
	leastShare = 0.01
)

// heldMap shows the bytes alive by a name over the schedule, in the order in which the names
// come. Those that hold little at their most are one row.
func heldMap(p *graph.Program, title string, name func(*graph.Storage) string) page.Heat {
	by := liveBy(p, name)
	var names []string
	for _, s := range p.Storages {
		if n := name(s); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	small := slices.SortedFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(slices.Max(by[b]), slices.Max(by[a])) })
	least := int64(leastShare * float64(slices.Max(p.LiveBytes(nil))))
	named := slices.IndexFunc(small, func(n string) bool { return slices.Max(by[n]) < least })
	if named < 0 {
		named = len(small)
	}
	if small = small[min(mostRows, named):]; len(small) == 1 {
		small = nil
	}
	h := page.Heat{Title: title, Note: "Bytes alive.", X: "step of the schedule", Format: func(v float64) string { return formatBytes(int64(v)) }}
	rest := page.HeatRow{Name: fmt.Sprintf("%d others", len(small)), Values: make([]float64, len(p.Steps)+2)}
	for i := range rest.Values {
		h.Columns = append(h.Columns, float64(i))
	}
	for _, n := range names {
		row := page.HeatRow{Name: n, Values: make([]float64, len(p.Steps)+2)}
		into := &row
		if slices.Contains(small, n) {
			into = &rest
		}
		for i := range into.Values {
			into.Values[i] += float64(by[n][i])
		}
		if into == &row {
			h.Rows = append(h.Rows, row)
		}
	}
	if len(small) > 0 {
		h.Rows = append(h.Rows, rest)
	}
	return h
}

// mostHeld values of a table of what is alive are listed one by one.
const mostHeld = 40

// heldTables tell what is alive at some moment.
func heldTables(when string, held []HeldValue) []page.Table {
	largest := page.Table{Caption: fmt.Sprintf("The largest of %d values alive %s", len(held), when), Columns: []string{"node", "kind", "value", "shape", "bytes", "source"}}
	for _, v := range held[:min(mostHeld, len(held))] {
		largest.Rows = append(largest.Rows, []string{v.Node, v.Kind, v.Use, cmp.Or(v.Shape, "–"), formatBytes(v.Bytes), v.Source})
	}
	return []page.Table{
		sumTable("By use, "+when, sumHeld(held, func(v HeldValue) string { return v.Use })),
		sumTable("By region, "+when, sumHeld(held, func(v HeldValue) string { return v.Region })),
		sumTable("By operation, "+when, sumHeld(held, func(v HeldValue) string { return v.Kind })),
		largest}
}

// sumTable lists sums of bytes.
func sumTable(caption string, sums []HeldSum) page.Table {
	t := page.Table{Caption: caption, Columns: []string{"", "bytes", "share"}}
	var all int64
	for _, s := range sums {
		all += s.Bytes
	}
	for _, s := range sums {
		t.Rows = append(t.Rows, []string{s.Name, formatBytes(s.Bytes), fmt.Sprintf("%.1f%%", 100*float64(s.Bytes)/float64(max(all, 1)))})
	}
	return t
}
