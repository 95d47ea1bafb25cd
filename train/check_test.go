package train_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
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

// fickle is an op that remembers, which no op may: it copies, and spoils the first element
// in every second run.
type fickle struct {
	graph.Pure
	runs  *int
	spoil bool
}

func (fickle) Kind() string                                    { return "fickle" }
func (fickle) Cost(in []device.Spec) graph.Cost                { return graph.Traffic(0, in, in) }
func (fickle) Outputs(in []device.Spec) ([]device.Spec, error) { return in, nil }
func (f fickle) Run(x *graph.Exec, out, in []device.Tensor) error {
	*f.runs++
	x.Copy(out[0], in[0])
	if f.spoil && *f.runs%2 == 0 {
		x.Fill(out[0].Slice(0, 0, 1).Slice(1, 0, 1).Slice(2, 0, 1), 2)
	}
	return nil
}

func (fickle) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value { return grad }

// dropped is a loss of logits behind dropout and fickle, all of it run again. The op
// spoils on the last of the ranks that share experts, if at all.
func dropped(spoil bool) train.Loss {
	return func(b *graph.Builder, logits graph.Value, in train.Inputs) (loss graph.Value) {
		checkpoint.Region(b, checkpoint.Full(), func() {
			x := nn.Dropout(b, logits, 0.5)
			x = b.Apply(fickle{runs: new(int), spoil: spoil && in.Experts.Rank() == in.Experts.Size()-1}, x)
			loss = nn.Scale(graph.Sum(nn.CrossEntropy(nn.Mul(x, x), in.Labels, 0)), in.Scale)
		})
		return loss
	}
}

// On ranks, with dropout, what remembers is named by the rank on which it does, the others
// end, and nothing else is found.
func TestChecksOnRanks(t *testing.T) {
	for _, check := range []graph.CheckLevel{graph.CheckChecksum, graph.CheckBitwise} {
		for _, spoil := range []bool{false, true} {
			c := onRanks(t, 1, 2)
			c.ActivationCheckpoint = train.ActivationCheckpointConfig{Mode: "full", Check: check.String(), Rerun: train.StringList{"all_to_all", "to_host"}}
			r := newTrainer(t, c, train.Options{Model: latent(device.Float32), Loss: dropped(spoil)})
			_, err := r.Step(context.Background())
			if !spoil {
				if err != nil {
					t.Errorf("%v: %v", check, err)
				}
				continue
			}
			var found *graph.RerunError
			if !errors.As(err, &found) || !errors.Is(err, graph.ErrRerun) || !strings.Contains(err.Error(), "train: step 1: rank 1: graph: loss.fickle:0: ") {
				t.Fatalf("%v: %v", check, err)
			}
			if found.Input || len(found.Inputs) != 1 || found.Inputs[0].Name != "loss.dropout:0" || !strings.Contains(err.Error(), "check_test.go:") {
				t.Errorf("%v: %v", check, err)
			}
			if bitwise := check == graph.CheckBitwise; bitwise != (found.Differing == 1) || bitwise && (found.Values[1] != "2" || !slices.Equal(found.Element, []int{0, 0, 0})) {
				t.Errorf("%v: %v", check, err)
			}
		}
	}
}
