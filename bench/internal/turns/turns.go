// Package turns compares trainings that must give the same: they make their steps in turns,
// so that what disturbs one disturbs all.
package turns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lethe-go/lethe/bench/internal/quantile"
	"github.com/lethe-go/lethe/train"
)

// Reference is what every training gives, step by step: the first to make a step sets it.
type Reference []train.StepResult

// Comparison is some trainings held to one reference. It owns their Trainers.
type Comparison struct {
	reference Reference
	runners   []*Runner
}

// New is a comparison over as many steps as the reference has. Several one after the other may
// share it.
func New(reference Reference) *Comparison { return &Comparison{reference: reference} }

// Runner is a training of a comparison.
type Runner struct {
	*train.Trainer
	name  string
	check Check
	// Seconds of each step but the first, which finds no page of its memory there.
	Seconds []float64
}

// Check looks at what a step gave and at what this process' first rank did for it.
type Check func(train.StepResult, train.Traffic) error

// Add takes over a Trainer.
func (c *Comparison) Add(name string, t *train.Trainer, check Check) *Runner {
	r := &Runner{Trainer: t, name: name, check: check}
	c.runners = append(c.runners, r)
	return r
}

// Close closes all Trainers.
func (c *Comparison) Close() (err error) {
	for _, r := range c.runners {
		err = errors.Join(err, r.Close())
	}
	return err
}

// Run makes all steps. It fails at the first whose loss or gradient norm are not the bits of
// the reference, or that fails its check.
func (c *Comparison) Run(ctx context.Context) error {
	for i := range c.reference {
		for _, r := range c.runners {
			if err := r.step(ctx, &c.reference[i]); err != nil {
				return fmt.Errorf("case %s, step %d: %w", r.name, i+1, err)
			}
		}
	}
	return nil
}

func (r *Runner) step(ctx context.Context, reference *train.StepResult) error {
	before, begin := r.Traffic(), time.Now()
	got, err := r.Step(ctx)
	if err != nil {
		return err
	}
	if seconds := time.Since(begin).Seconds(); r.Steps() > 1 {
		r.Seconds = append(r.Seconds, seconds)
	}
	if *reference == (train.StepResult{}) {
		*reference = got
	}
	if !sameBits(got.Loss, reference.Loss) || !sameBits(got.GradNorm, reference.GradNorm) {
		return fmt.Errorf("loss %v and gradient norm %v, elsewhere %v and %v", got.Loss, got.GradNorm, reference.Loss, reference.GradNorm)
	}
	return r.check(got, r.Traffic().Minus(before))
}

func sameBits(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// RatioTo is the time of a step to that of another training, step by step: the median and the
// quartiles.
func (r *Runner) RatioTo(other *Runner) (median, low, high float64) {
	ratios := make([]float64, len(r.Seconds))
	for i, s := range r.Seconds {
		ratios[i] = s / other.Seconds[i]
	}
	return quantile.Median(ratios), quantile.Of(ratios, 0.25), quantile.Of(ratios, 0.75)
}
