package train_test

import (
	"context"
	"math"
	"testing"

	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/nn"
	"github.com/lethe-go/lethe/train"
)

// crossEntropy is the loss that there is anyway, written by a user, n times.
func crossEntropy(n float64) train.Loss {
	return func(b *graph.Builder, logits graph.Value, in train.Inputs) graph.Value {
		sum := graph.Sum(nn.CrossEntropy(logits, in.Labels, 0))
		return nn.Scale(nn.Scale(sum, in.Scale), b.Full(n, logits.Spec().DType))
	}
}

func TestOwnLoss(t *testing.T) {
	quickstart, err := deepseekv3.Flavor("quickstart")
	if err != nil {
		t.Fatal(err)
	}
	quickstart.Layers = 1
	for name, model := range map[string]train.Model{"llama3": nil, "deepseek_v3": train.DeepSeekV3("tiny", quickstart)} {
		t.Run(name, func(t *testing.T) {
			c := tinyConfig(t)
			c.State.Enable = false
			c.Validation.Enable, c.Validation.Steps = true, 2
			c.Training.MaxNorm = 0
			run := func(l train.Loss) ([]train.StepResult, train.Evaluation) {
				r := newTrainer(t, c, train.Options{Model: model, Loss: l})
				results := steps(t, r, 4)
				e, err := r.Evaluate(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				return results, e
			}
			want, held := run(nil)
			same, heldSame := run(crossEntropy(1))
			double, _ := run(crossEntropy(2))
			near := func(what string, got, want float64) {
				t.Helper()
				if math.Abs(got-want) > 2e-4*math.Abs(want) {
					t.Errorf("%s is %g, want %g", what, got, want)
				}
			}
			for i := range want {
				near("loss", same[i].Loss, want[i].Loss)
				near("gradient norm", same[i].GradNorm, want[i].GradNorm)
				// AdamW divides the gradient's size out: the parameters stay the same.
				near("twice the loss", double[i].Loss, 2*want[i].Loss)
				near("twice the gradient norm", double[i].GradNorm, 2*want[i].GradNorm)
			}
			near("held-out loss", heldSame.Loss, held.Loss)
		})
	}
}
