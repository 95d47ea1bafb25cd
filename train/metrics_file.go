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
	last lastSteps
}

// lastSteps are the steps of the last line of each kind. Steps of a kind increase, and
// no line is about a step before that of another: the file is in order of time.
type lastSteps struct{ step, validation int }

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
		w.last, keep = line.last, line.end
	}
	return keep, nil
}

// Write appends one line. Steps must increase.
func (w *MetricsWriter) Write(m Metrics) error {
	return w.append(m, func(l *lastSteps) error { return l.advance(m.Step) })
}

// WriteValidation appends the line of a measurement. Its step must not be before that
// of the last line. A measurement that was resumed from and is made again is the same,
// and not written again.
func (w *MetricsWriter) WriteValidation(v ValidationMetrics) error {
	if v.Step > 0 && v.Step == w.last.validation {
		return nil
	}
	return w.append(v, func(l *lastSteps) error { return l.validate(v.Step) })
}

func (w *MetricsWriter) append(line any, advance func(*lastSteps) error) error {
	last := w.last
	if err := advance(&last); err != nil {
		return fmt.Errorf("train: metrics: %s: %w", w.file.Name(), err)
	}
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("train: metrics: %w", err)
	}
	// One call: a killed process leaves at most one torn line.
	if _, err := w.file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("train: metrics: %w", err)
	}
	w.last = last
	return nil
}

// advance notes a line about a step.
func (l *lastSteps) advance(step int) error {
	if before := max(l.step, l.validation); step <= before {
		return fmt.Errorf("step %d after step %d", step, before)
	}
	l.step = step
	return nil
}

// validate notes a line about a measurement.
func (l *lastSteps) validate(step int) error {
	if step < l.step || step <= l.validation {
		return fmt.Errorf("validation at step %d after step %d", step, max(l.step, l.validation))
	}
	l.validation = step
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

// ReadMetrics reads the lines of a metrics file about steps. A last line that was not
// written to its end is left out.
func ReadMetrics(path string) ([]Metrics, error) {
	lines, err := readLines(path)
	var list []Metrics
	for _, l := range lines {
		if !l.isValidation() {
			list = append(list, l.Metrics)
		}
	}
	return list, err
}

// ReadValidations reads the lines of a metrics file about held-out data.
func ReadValidations(path string) ([]ValidationMetrics, error) {
	lines, err := readLines(path)
	var list []ValidationMetrics
	for _, l := range lines {
		if l.isValidation() {
			list = append(list, l.validation())
		}
	}
	return list, err
}

func readLines(path string) ([]metricsLine, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("train: metrics: %w", err)
	}
	defer file.Close()
	var lines []metricsLine
	for line, err := range metricsLines(path, file) {
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// metricsLine is a line of either kind and the bytes [start, end) it takes of the file.
type metricsLine struct {
	Metrics
	ValidationLoss *Float `json:"validation_loss"`
	Predictions    int64  `json:"validation_predictions"`

	start, end int64
	last       lastSteps // this line included
}

func (l *metricsLine) isValidation() bool { return l.ValidationLoss != nil }

func (l *metricsLine) validation() ValidationMetrics {
	return ValidationMetrics{Step: l.Step, Loss: *l.ValidationLoss, Predictions: l.Predictions}
}

// metricsLines yields the complete lines in order, or an error and nothing more.
func metricsLines(path string, r io.Reader) func(yield func(metricsLine, error) bool) {
	return func(yield func(metricsLine, error) bool) {
		lines := bufio.NewReader(r)
		var at int64
		var last lastSteps
		for number := 1; ; number++ {
			text, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return // what is left, if anything, is a torn line
			}
			line := metricsLine{start: at, end: at + int64(len(text)), last: last}
			if err == nil {
				err = line.parse(text)
			}
			if err != nil {
				yield(metricsLine{}, fmt.Errorf("train: metrics: %s:%d: %w; repair the line or move the file away", path, number, err))
				return
			}
			if !yield(line, nil) {
				return
			}
			at, last = line.end, line.last
		}
	}
}

func (l *metricsLine) parse(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(l); err != nil {
		return err
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("goes on after its end: %.20q", rest)
	}
	if l.isValidation() {
		return l.last.validate(l.Step)
	}
	return l.last.advance(l.Step)
}
