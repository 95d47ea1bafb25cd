package train

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lethe-go/lethe/internal/chrometrace"
	"github.com/lethe-go/lethe/internal/page"
)

// timelineKinds are the categories of a trace that a timeline tells apart.
var timelineKinds = []string{forwardCategory, rerunCategory, backwardCategory, optimizerCategory, waitCategory}

// profileSection shows the last traced step of each run.
func profileSection(runs []reportedRun) (s page.Section, err error) {
	s.Title = "Last profile"
	for _, r := range runs {
		files, err := r.lastTraces()
		if err != nil {
			return s, err
		}
		if len(files) == 0 {
			continue
		}
		spans := page.Spans{X: "milliseconds", Kinds: timelineKinds}
		took := map[string]*operationTime{}
		for _, file := range files {
			if err := addTrace(&spans, took, file); err != nil {
				return s, err
			}
		}
		name, _, _ := strings.Cut(filepath.Base(files[0]), ".")
		spans.Title = fmt.Sprintf("Timeline of %s, %s", strings.ReplaceAll(name, "-", " "), r.name)
		spans.Note = "What each lane of a rank, and each worker of the device, did."
		s.Spans = append(s.Spans, spans)
		s.Tables = append(s.Tables, operationTable(r.name, took))
	}
	return s, nil
}

// lastTraces are the files of the last traced step, one for each process of the job.
func (r *reportedRun) lastTraces() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(r.config.TracesPath(), "step-*.trace.json"))
	if err != nil {
		return nil, fmt.Errorf("train: profile: %w", err)
	}
	step := func(file string) string {
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		return name
	}
	// Longer names are of later steps.
	slices.SortFunc(files, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(step(a)), len(step(b))), cmp.Compare(a, b))
	})
	for i, f := range files {
		if step(f) == step(files[len(files)-1]) {
			return files[i:], nil
		}
	}
	return nil, nil
}

// operationTime is what operations of one kind took on the compute lanes, in one category.
type operationTime struct {
	kind, category string
	count          int
	took           time.Duration
}

func addTrace(s *page.Spans, took map[string]*operationTime, file string) error {
	trace, err := chrometrace.ReadFile(file)
	if err != nil {
		return fmt.Errorf("train: profile: %w; move the file away", err)
	}
	processes, threads := trace.Names()
	lanes := map[int]int{} // by thread
	for _, e := range trace.Events {
		if e.Phase != chrometrace.Complete || e.Category == groupCategory || e.Duration == nil {
			continue
		}
		if _, ok := lanes[e.Thread]; !ok {
			lanes[e.Thread] = len(s.Lanes)
			s.Lanes = append(s.Lanes, page.Lane{Name: processes[e.Process] + ", " + threads[e.Thread]})
		}
		begin, end := milliseconds(e.Time), milliseconds(e.Time+*e.Duration)
		l := &s.Lanes[lanes[e.Thread]]
		l.Spans = append(l.Spans, page.Span{Begin: begin, End: end, Kind: slices.Index(timelineKinds, e.Category),
			Text: fmt.Sprintf("%s %s · from %.3f, for %.3f ms", e.Category, e.Name, begin, end-begin)})
		s.Length = max(s.Length, end)
		if kind, ok := e.Args["kind"].(string); ok {
			key := e.Category + " " + kind
			if took[key] == nil {
				took[key] = &operationTime{kind: kind, category: e.Category}
			}
			took[key].count++
			took[key].took += time.Duration(*e.Duration)
		}
	}
	for i := range s.Lanes {
		slices.SortStableFunc(s.Lanes[i].Spans, func(a, b page.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	}
	return nil
}

func milliseconds(t chrometrace.Time) float64 { return float64(t) / float64(time.Millisecond) }

// operationTable lists what took longest.
func operationTable(run string, took map[string]*operationTime) page.Table {
	t := page.Table{Caption: "Operations by time, " + run, Columns: []string{"operation", "pass", "calls", "milliseconds", "share"}}
	var all time.Duration
	list := []*operationTime{}
	for _, o := range took {
		list = append(list, o)
		all += o.took
	}
	slices.SortFunc(list, func(a, b *operationTime) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.kind, b.kind), cmp.Compare(a.category, b.category))
	})
	const most = 30
	for _, o := range list[:min(most, len(list))] {
		t.Rows = append(t.Rows, []string{o.kind, o.category, fmt.Sprint(o.count), fmt.Sprintf("%.3f", milliseconds(chrometrace.Time(o.took))),
			fmt.Sprintf("%.1f%%", 100*float64(o.took)/float64(max(all, 1)))})
	}
	return t
}
