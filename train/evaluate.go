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
// microbatches of it on every rank. It changes nothing. Sums over microbatches are
// float64.
func (t *Trainer) Evaluate(ctx context.Context) (Evaluation, error) {
	var e Evaluation
	if t.ranks[0].machines.evaluate == nil {
		return e, errors.New("train: nothing is held out: set validation.enable=true")
	}
	parts := make([]heldOutPart, len(t.ranks))
	err := t.together(func(r *rank) (err error) {
		parts[r.index], err = r.evaluate(ctx, t.data, t.step)
		return err
	})
	if err != nil {
		return e, fmt.Errorf("train: held-out data at step %d: %w", t.step, err)
	}
	var sum float64
	for _, p := range parts {
		sum += p.sum
		e.Predictions += p.predictions
		e.Complete = p.complete // the same on every rank
	}
	e.Loss = sum / float64(e.Predictions)
	return e, nil
}

// heldOutPart is one rank's part of a measurement.
type heldOutPart struct {
	sum         float64 // of the cross-entropy
	predictions int64
	complete    bool
}

// evaluate runs this rank's microbatches. A microbatch without labels runs too: other
// ranks may have some, and all take part in every exchange.
func (r *rank) evaluate(ctx context.Context, d *dataset, step int) (heldOutPart, error) {
	var p heldOutPart
	c := r.config
	loader, err := d.heldOutLoader(ctx, c.Training, r.index, c.Parallelism.ExpertParallelDegree)
	if err != nil {
		return p, err
	}
	m := r.machines.evaluate
	var b data.Batch
	for i := 0; c.Validation.Steps < 0 || i < c.Validation.Steps; i++ {
		err := loader.Next(ctx, &b)
		if err == io.EOF {
			p.complete = true
			break
		}
		if err != nil {
			return p, err
		}
		m.feed(&b, 1/float64(max(b.Valid, 1)))
		if err := m.Run(ctx, graph.RunOptions{Step: step, Microbatch: i}); err != nil {
			return p, err
		}
		p.sum += m.loss() * float64(b.Valid)
		p.predictions += int64(b.Valid)
	}
	return p, nil
}
