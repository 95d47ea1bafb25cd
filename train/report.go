package train

import (
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/lethe-go/lethe/internal/page"
)

// WriteReport writes an HTML page about runs, one or more that are compared, given by
// their dump folders. The page needs no network.
func WriteReport(w io.Writer, folders ...string) error {
	runs := make([]reportedRun, len(folders))
	p := page.Page{Title: "Lethe run"}
	for i, folder := range folders {
		var err error
		if runs[i], err = openReported(folder); err != nil {
			return &ConfigError{err}
		}
		if i > 0 {
			p.Title, p.Summary = "Lethe runs", p.Summary+"; "
		}
		p.Summary += runs[i].describe()
	}
	nameRuns(runs)
	p.Sections = append(p.Sections, page.Section{Title: "Training", Lines: trainingCharts(runs)},
		page.Section{Title: "Speed and memory", Lines: resourceCharts(runs)})
	if heats := loadMaps(runs); len(heats) > 0 {
		p.Sections = append(p.Sections, page.Section{Title: "Experts", Heats: heats})
	}
	for _, section := range []func([]reportedRun) (page.Section, error){profileSection, snapshotSection} {
		s, err := section(runs)
		if err != nil {
			return &ConfigError{err}
		}
		if len(s.Spans)+len(s.Tables) > 0 {
			p.Sections = append(p.Sections, s)
		}
	}
	return p.Write(w)
}

// reportedRun is what a dump folder tells of a run.
type reportedRun struct {
	folder      string
	name        string // in legends
	config      Config
	schedule    Schedule
	metrics     []Metrics
	validations []ValidationMetrics
}

func openReported(folder string) (r reportedRun, err error) {
	r.folder = folder
	if r.config, err = LoadConfig(filepath.Join(folder, ConfigFile)); err != nil {
		return r, err
	}
	r.config.Job.DumpFolder = folder // the run may have been moved
	r.schedule, _ = NewSchedule(r.config.LRScheduler, r.config.Training.Steps)
	path := filepath.Join(folder, MetricsFile)
	if r.metrics, err = ReadMetrics(path); err != nil {
		return r, err
	}
	r.validations, err = ReadValidations(path)
	return r, err
}

// nameRuns takes the last part of each folder, or all of it where two are the same.
func nameRuns(runs []reportedRun) {
	count := map[string]int{}
	for _, r := range runs {
		count[filepath.Base(r.folder)]++
	}
	for i := range runs {
		r := &runs[i]
		if r.name = filepath.Base(r.folder); count[r.name] > 1 {
			r.name = r.folder
		}
	}
}

func (r *reportedRun) describe() string {
	c, done := r.config, 0
	if n := len(r.metrics); n > 0 {
		done = r.metrics[n-1].Step
	}
	return fmt.Sprintf("%s: %s %s, %d × %d tokens a microbatch, activation_checkpoint.mode=%s, step %d of %d",
		r.folder, c.Model.Name, c.Model.Flavor, c.Training.LocalBatchSize, c.Training.SeqLen, c.ActivationCheckpoint.Mode, done, c.Training.Steps)
}

// series takes one value of every logged step.
func (r *reportedRun) series(name string, value func(Metrics) float64) page.Series {
	s := page.Series{Name: name}
	for _, m := range r.metrics {
		s.X, s.Y = append(s.X, float64(m.Step)), append(s.Y, value(m))
	}
	return s
}

func (r *reportedRun) heldOut(name string) page.Series {
	s := page.Series{Name: name}
	for _, v := range r.validations {
		s.X, s.Y = append(s.X, float64(v.Step)), append(s.Y, float64(v.Loss))
	}
	return s
}

// learningRate is what the config says about each step: a run writes it nowhere else.
func (r *reportedRun) learningRate(m Metrics) float64 {
	return r.config.Optimizer.LR * r.schedule.Factor(m.Step-1)
}

// linesOf is a chart with a line for each run.
func linesOf(runs []reportedRun, title, note string, format func(float64) string, value func(*reportedRun, Metrics) float64) page.Lines {
	l := page.Lines{Title: title, Note: note, X: "step", Format: format}
	for i := range runs {
		r := &runs[i]
		l.Series = append(l.Series, r.series(r.name, func(m Metrics) float64 { return value(r, m) }))
	}
	return l
}

func trainingCharts(runs []reportedRun) []page.Lines {
	loss := linesOf(runs, "Loss", "Mean cross-entropy of a token, in nats.", nil, func(_ *reportedRun, m Metrics) float64 { return float64(m.Loss) })
	for i := range runs {
		if len(runs[i].validations) > 0 {
			loss.Series = append(loss.Series, runs[i].heldOut(runs[i].name+", held out"))
		}
	}
	rate := linesOf(runs, "Learning rate", "By the schedule of the config.", nil, (*reportedRun).learningRate)
	rate.Linear = true
	return []page.Lines{loss,
		linesOf(runs, "Gradient norm", "Before clipping.", nil, func(_ *reportedRun, m Metrics) float64 { return float64(m.GradNorm) }),
		rate}
}

func resourceCharts(runs []reportedRun) []page.Lines {
	whole := func(v float64) string { return groupThousands(v, 0) }
	var most int64
	for _, r := range runs {
		for _, m := range r.metrics {
			most = max(most, m.MemoryBytes)
		}
	}
	unit, name := byteUnit(most)
	bytes := func(v float64) string { return fmt.Sprintf("%.4g %s", v, name) }
	return []page.Lines{
		linesOf(runs, "Throughput", "Tokens a second.", whole, func(_ *reportedRun, m Metrics) float64 { return float64(m.TPS) }),
		linesOf(runs, "MFU", "Model operations of the measured peak.", percent, func(_ *reportedRun, m Metrics) float64 { return float64(m.MFU) }),
		linesOf(runs, "Memory", "High-water mark since the line before.", bytes, func(_ *reportedRun, m Metrics) float64 { return float64(m.MemoryBytes) / unit })}
}

// loadMaps show, for each run with experts, how uneven their work was.
func loadMaps(runs []reportedRun) []page.Heat {
	var list []page.Heat
	for _, r := range runs {
		h := page.Heat{Title: "Expert load, " + r.name, Note: "Load of the busiest expert of a layer over the mean, minus 1: 0 is even.", X: "step"}
		row := map[string]int{}
		for at, m := range r.metrics {
			h.Columns = append(h.Columns, float64(m.Step))
			for _, l := range m.ExpertLoad {
				if _, ok := row[l.Layer]; !ok {
					row[l.Layer] = len(h.Rows)
					h.Rows = append(h.Rows, page.HeatRow{Name: l.Layer, Values: missing(len(r.metrics))})
				}
				h.Rows[row[l.Layer]].Values[at] = float64(l.MaxViolation)
			}
		}
		if len(h.Rows) > 0 {
			list = append(list, h)
		}
	}
	return list
}

func missing(n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = math.NaN()
	}
	return values
}
