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

// Evaluate measures the held-out data, with the moving average of the parameters if
// validation.use_ema is set, from its start, at most validation.steps
// microbatches of it on every rank. It changes nothing. Sums over microbatches are
// float64.
func (t *Trainer) Evaluate(ctx context.Context) (Evaluation, error) {
	var e Evaluation
	if t.ranks[0].machines.evaluate == nil {
		return e, errors.New("train: nothing is held out: set validation.enable=true")
	}
	if t.config.Validation.UseEMA && t.step == 0 {
		return e, errors.New("train: validation.use_ema: there is no moving average before the first step")
	}
	var p heldOut // the same on every rank
	err := t.together(ctx, func(ctx context.Context, r *rank) error {
		own, err := r.evaluate(ctx, t.data, t.step)
		if err == nil && r == t.ranks[0] {
			p = own
		}
		return err
	})
	if err == nil && p.predictions == 0 {
		err = errors.New("no token has a label")
	}
	if err != nil {
		return e, fmt.Errorf("train: held-out data at step %d: %w", t.step, err)
	}
	return Evaluation{Loss: p.sum / float64(p.predictions), Predictions: int64(p.predictions), Complete: p.complete}, nil
}

// heldOut is what a measurement adds up.
type heldOut struct {
	sum         float64 // of the cross-entropy
	predictions int
	complete    bool
}

// evaluate runs this rank's microbatches and returns what all ranks have measured. A microbatch without labels runs too: other
// ranks may have some, and all take part in every exchange.
func (r *rank) evaluate(ctx context.Context, d *dataset, step int) (heldOut, error) {
	var p heldOut
	c := r.config
	loader, err := d.heldOutBatches(ctx, c.Training, r.layout.dataRank(r.index), r.layout.dataRanks())
	if err != nil {
		return p, err
	}
	defer loader.Close()
	m := r.machines.evaluate
	var b data.Batch
	for i := 0; c.Validation.Steps < 0 || i < c.Validation.Steps; i++ {
		err := loader.Next(ctx, &b)
		if err == io.EOF {
			p.complete = true
			break
		}
		if err == nil {
			err = b.Check(c.Training.LocalBatchSize, c.Training.SeqLen, r.model.Vocab())
		}
		if err != nil {
			return p, err
		}
		m.feed(&b, 1/float64(max(b.Valid, 1)))
		if err := m.Run(ctx, graph.RunOptions{Step: step, Microbatch: r.microbatch(i)}); err != nil {
			return p, err
		}
		p.sum += m.loss() * float64(b.Valid)
		if r.counts() {
			p.predictions += b.Valid
		}
	}
	if err := r.totals.addCounts(ctx, &p.predictions); err != nil {
		return p, err
	}
	return p, r.totals.addSums(ctx, &p.sum)
}
