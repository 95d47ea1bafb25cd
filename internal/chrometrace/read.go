package chrometrace

import (
	"encoding/json"
	"fmt"
	"os"
)

// ReadFile reads a trace that Write wrote.
func ReadFile(path string) (Trace, error) {
	var t Trace
	text, err := os.ReadFile(path)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Names are those that ProcessName and ThreadName have given, by the numbers of processes and
// threads.
func (t Trace) Names() (processes, threads map[int]string) {
	processes, threads = map[int]string{}, map[int]string{}
	for _, e := range t.Events {
		name, _ := e.Args["name"].(string)
		switch {
		case e.Phase != Metadata:
		case e.Name == "process_name":
			processes[e.Process] = name
		case e.Name == "thread_name":
			threads[e.Thread] = name
		}
	}
	return processes, threads
}
