package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// MetricsFile is the name of the metrics in a run's dump folder.
const MetricsFile = "metrics.jsonl"

// MetricsWriter appends to metrics.jsonl. Use it from one goroutine.
type MetricsWriter struct {
	file *os.File
	last int // step
}

// OpenMetrics opens the metrics of a run that resumes after step, 0 for one that
// starts. Lines of later steps are dropped, for the run will write them again,
// and so is a last line that was not written to its end. The file is made if
// there is none.
func OpenMetrics(path string, step int) (*MetricsWriter, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("train: metrics: %w; make job.dump_folder writable", err)
	}
	w := &MetricsWriter{file: file}
	keep, err := w.seek(path, step)
	if err == nil {
		err = file.Truncate(keep)
	}
	if err == nil {
		_, err = file.Seek(keep, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return w, nil
}

// seek finds the length of the lines up to step.
func (w *MetricsWriter) seek(path string, step int) (keep int64, err error) {
	for line, err := range metricsLines(path, w.file) {
		if err != nil {
			return 0, err
		}
		if line.Step > step {
			break
		}
		w.last, keep = line.Step, line.end
	}
	return keep, nil
}

// Write appends one line. Steps must increase.
func (w *MetricsWriter) Write(m Metrics) error {
	if m.Step <= w.last {
		return fmt.Errorf("train: metrics: %s: step %d after step %d", w.file.Name(), m.Step, w.last)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("train: metrics: %w", err)
	}
	// One call: a killed process leaves at most one torn line.
	if _, err := w.file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("train: metrics: %w", err)
	}
	w.last = m.Step
	return nil
}

// Sync makes the lines durable. Called before a state is saved, it makes sure
// that a resumed run has a line for every step before the state.
func (w *MetricsWriter) Sync() error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("train: metrics: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *MetricsWriter) Close() error { return w.file.Close() }

// ReadMetrics reads the lines of a metrics file. A last line that was not
// written to its end is left out.
func ReadMetrics(path string) ([]Metrics, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("train: metrics: %w", err)
	}
	defer file.Close()
	var list []Metrics
	for line, err := range metricsLines(path, file) {
		if err != nil {
			return nil, err
		}
		list = append(list, line.Metrics)
	}
	return list, nil
}

// metricsLine is a line and the bytes [start, end) it takes of the file.
type metricsLine struct {
	Metrics
	start, end int64
}

// metricsLines yields the complete lines in order, or an error and nothing more.
func metricsLines(path string, r io.Reader) func(yield func(metricsLine, error) bool) {
	return func(yield func(metricsLine, error) bool) {
		lines := bufio.NewReader(r)
		var at int64
		previous := 0
		for number := 1; ; number++ {
			text, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return // what is left, if anything, is a torn line
			}
			line := metricsLine{start: at, end: at + int64(len(text))}
			if err == nil {
				err = line.parse(text, previous)
			}
			if err != nil {
				yield(metricsLine{}, fmt.Errorf("train: metrics: %s:%d: %w; repair the line or move the file away", path, number, err))
				return
			}
			if !yield(line, nil) {
				return
			}
			at, previous = line.end, line.Step
		}
	}
}

func (l *metricsLine) parse(text []byte, previous int) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&l.Metrics); err != nil {
		return err
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("goes on after its end: %.20q", rest)
	}
	if l.Step <= previous {
		return fmt.Errorf("step %d after step %d", l.Step, previous)
	}
	return nil
}
