package tensorboard

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// filePrefix is how TensorBoard finds event files.
const filePrefix = "events.out.tfevents."

// Writer appends to an event file. Use it from one goroutine.
type Writer struct {
	file *os.File
	now  func() time.Time
	// record is kept between events.
	record []byte
}

// Create begins an event file in folder, which is made if it is not there. Readers
// forget what older files of the folder say of step first and later ones.
func Create(folder string, first int) (*Writer, error) {
	return create(folder, first, time.Now)
}

func create(folder string, first int, now func() time.Time) (*Writer, error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	w := &Writer{now: now}
	var err error
	if w.file, err = createFile(folder, now().Unix()); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	if err = w.write(versionEvent(w.wallTime())); err == nil {
		err = w.write(sessionEvent(w.wallTime(), int64(first)))
	}
	if err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

// createFile makes a file with a new name. Readers take files in the order of their
// names, so that a later one needs a later time, whatever the clock says.
func createFile(folder string, unix int64) (*os.File, error) {
	older, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, o := range older {
		rest, ok := strings.CutPrefix(o.Name(), filePrefix)
		seconds, _, _ := strings.Cut(rest, ".")
		if t, err := strconv.ParseInt(seconds, 10, 64); ok && err == nil && len(seconds) == 10 {
			unix = max(unix, t+1)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	// Clocks may be anything; a name has ten digits, so that names sort by time.
	unix = max(0, min(unix, 9_999_999_999))
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s%010d.%s.%d.%d", filePrefix, unix, host, os.Getpid(), n)
		f, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !os.IsExist(err) {
			return f, err
		}
	}
}

// Write appends an event with the values of a step.
func (w *Writer) Write(step int, values ...Value) error {
	return w.write(summaryEvent(w.wallTime(), int64(step), values))
}

// write appends a record by one call, so that a killed process tears at most one.
func (w *Writer) write(event []byte) error {
	w.record = appendRecord(w.record[:0], event)
	if _, err := w.file.Write(w.record); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

func (w *Writer) wallTime() float64 { return float64(w.now().UnixMicro()) / 1e6 }

// Path of the file.
func (w *Writer) Path() string { return w.file.Name() }

// Sync makes what was written durable.
func (w *Writer) Sync() error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }
