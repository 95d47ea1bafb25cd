package train_test

import (
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/train"
)

// Comparing reruns with first runs finds nothing in our own ops and changes no bit, with
// exchanges between ranks rerun too.
func TestChecksTrainTheSameBits(t *testing.T) {
	var want []train.StepResult
	for _, check := range graph.CheckNames() {
		c := onRanks(t, 1, 2)
		c.ActivationCheckpoint = train.ActivationCheckpointConfig{Mode: "full", Check: check, Rerun: train.StringList{"all_to_all", "to_host"}}
		got := steps(t, newTrainer(t, c, train.Options{Model: latent(device.Float32)}), 3)
		if want == nil {
			want = got
		}
		for i := range got {
			if got[i].Loss != want[i].Loss || got[i].GradNorm != want[i].GradNorm {
				t.Errorf("check %s, step %d: loss %v, gradient norm %v, want %v and %v", check, i+1, got[i].Loss, got[i].GradNorm, want[i].Loss, want[i].GradNorm)
			}
		}
	}
}
