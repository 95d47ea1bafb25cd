// Package chrometrace writes traces in the JSON object format of Chrome's Trace Event
// Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
// The format: "Trace Event Format", Google, document 1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
package chrometrace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Time is a time of a trace. It is written in microseconds with three decimals, which is
// to the nanosecond.
type Time time.Duration

// MarshalJSON implements [encoding/json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	sign := ""
	if t < 0 {
		sign, t = "-", -t
	}
	return fmt.Appendf(nil, "%s%d.%03d", sign, t/1000, t%1000), nil
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (t *Time) UnmarshalJSON(text []byte) error {
	us, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return err
	}
	*t = Time(us*1000 + 0.5)
	return nil
}

// Event is one entry of traceEvents.
type Event struct {
	Name     string `json:"name"`
	Category string `json:"cat,omitempty"`
	Phase    Phase  `json:"ph"`
	// Process and Thread are 1 or more, since 0 is the idle task to Perfetto, which also
	// takes threads of one number for one thread, whatever their processes.
	Process int  `json:"pid"`
	Thread  int  `json:"tid"`
	Time    Time `json:"ts"`
	// Duration of a Complete event.
	Duration *Time `json:"dur,omitempty"`
	// ID joins the events of a flow.
	ID int `json:"id,omitempty"`
	// Binding of a FlowEnd: "e" binds it to the slice around it.
	Binding string `json:"bp,omitempty"`
	// Color is one of the names that chrome://tracing knows.
	Color string         `json:"cname,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// Phase is the type of an Event.
type Phase string

const (
	// Complete is a slice. Slices of a thread nest; the outer one comes first.
	Complete Phase = "X"
	// Counter gives new values to the series of a counter of its process.
	Counter Phase = "C"
	// FlowStart, FlowStep and FlowEnd are arrows from slice to slice.
	FlowStart Phase = "s"
	FlowStep  Phase = "t"
	FlowEnd   Phase = "f"
	// Metadata names processes and threads and puts them in order.
	Metadata Phase = "M"
)

// Slice is a Complete event from begin to end.
func Slice(process, thread int, name, category string, begin, end time.Duration) Event {
	d := Time(end - begin)
	return Event{Name: name, Category: category, Phase: Complete, Process: process, Thread: thread, Time: Time(begin), Duration: &d}
}

// ProcessName names a process, one of whose threads is given. Processes are shown in order
// of their numbers.
func ProcessName(process, thread int, name string) []Event {
	return []Event{meta("process_name", process, thread, "name", name), meta("process_sort_index", process, thread, "sort_index", process)}
}

// ThreadName names a thread. Threads of a process are shown in order of their numbers.
func ThreadName(process, thread int, name string) []Event {
	return []Event{meta("thread_name", process, thread, "name", name), meta("thread_sort_index", process, thread, "sort_index", thread)}
}

func meta(kind string, process, thread int, key string, value any) Event {
	return Event{Name: kind, Phase: Metadata, Process: process, Thread: thread, Args: map[string]any{key: value}}
}

// Trace is a whole file.
type Trace struct {
	Events []Event `json:"traceEvents"`
	// Unit in which times are shown: "ms" or "ns".
	Unit string `json:"displayTimeUnit"`
	// Other says what the trace is of.
	Other map[string]any `json:"otherData,omitempty"`
}

// Write writes the trace, one event a line.
func (t Trace) Write(to io.Writer) error {
	w := bufio.NewWriter(to)
	io.WriteString(w, "{\"traceEvents\":[\n")
	for i := range t.Events {
		text, err := json.Marshal(&t.Events[i])
		if err != nil {
			return fmt.Errorf("chrometrace: event %d, %s: %w", i, t.Events[i].Name, err)
		}
		if i > 0 {
			io.WriteString(w, ",\n")
		}
		w.Write(text)
	}
	other, err := json.Marshal(t.Other)
	if err != nil {
		return fmt.Errorf("chrometrace: %w", err)
	}
	fmt.Fprintf(w, "\n],\"displayTimeUnit\":%q,\"otherData\":%s}\n", t.Unit, other)
	return w.Flush()
}
