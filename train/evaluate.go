package train

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/graph"
)

// Evaluation is a measurement on held-out data.
type Evaluation struct {
	// Loss is the mean cross-entropy over all predictions, in nats.
	Loss float64
	// Predictions is the number of labels measured.
	Predictions int64
	// Complete is whether that is all of the held-out data.
	Complete bool
}

// Evaluate measures the held-out data from its start, at most validation.steps
// microbatches of it. It changes nothing. Sums over microbatches are float64.
func (t *Trainer) Evaluate(ctx context.Context) (Evaluation, error) {
	var e Evaluation
	m := t.machines.evaluate
	if m == nil {
		return e, errors.New("train: nothing is held out: set validation.enable=true")
	}
	loader, err := t.data.heldOutLoader(ctx, t.config.Training)
	if err != nil {
		return e, err
	}
	var b data.Batch
	var sum float64
	for i := 0; t.config.Validation.Steps < 0 || i < t.config.Validation.Steps; i++ {
		err := loader.Next(ctx, &b)
		if err == io.EOF {
			e.Complete = true
			break
		}
		if err != nil {
			return e, err
		}
		if b.Valid == 0 {
			continue
		}
		m.feed(&b, 1/float64(b.Valid))
		if err := m.Run(ctx, graph.RunOptions{Step: t.step, Microbatch: i}); err != nil {
			return e, fmt.Errorf("train: held-out data at step %d: %w", t.step, err)
		}
		sum += m.loss() * float64(b.Valid)
		e.Predictions += int64(b.Valid)
	}
	e.Loss = sum / float64(e.Predictions)
	return e, nil
}
