package train

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzMetricsLines checks that what is kept of a file are whole lines from its
// start, and that they are read again as they are written again.
func FuzzMetricsLines(f *testing.F) {
	f.Add([]byte("{\"step\":1,\"loss\":7.5}\n{\"step\":2,\"loss\":\"NaN\"}\n{\"st"))
	f.Add([]byte("{\"step\":2}\n{\"step\":1}\n"))
	f.Add([]byte("{\"step\":2,\"expert_load\":[{\"layer\":\"moe\",\"entropy\":0.5}]}\n{\"step\":2,\"validation_loss\":1,\"validation_predictions\":3}\n{\"step\":3}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		var end int64
		var again []byte
		var steps []int
		for line, err := range metricsLines("m", bytes.NewReader(content)) {
			if err != nil {
				if !strings.HasPrefix(err.Error(), "train: metrics: m:") || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q", err)
				}
				return
			}
			if line.isValidation() && line.Step < line.last.step {
				t.Fatalf("validation at step %d after step %d", line.Step, line.last.step)
			}
			if line.start != end || content[line.end-1] != '\n' {
				t.Fatalf("line of step %d is [%d, %d), the one before ends at %d", line.Step, line.start, line.end, end)
			}
			end = line.end
			text, err := json.Marshal(line.Metrics)
			if line.isValidation() {
				text, err = json.Marshal(line.validation())
			}
			if err != nil {
				t.Fatal(err)
			}
			again = append(append(again, text...), '\n')
			steps = append(steps, line.Step)
		}
		if bytes.IndexByte(content[end:], '\n') >= 0 {
			t.Errorf("a whole line is left out after byte %d", end)
		}
		for line, err := range metricsLines("again", bytes.NewReader(again)) {
			if err != nil || line.Step != steps[0] {
				t.Fatalf("%v: step %d, was %v", err, line.Step, steps)
			}
			steps = steps[1:]
		}
	})
}
