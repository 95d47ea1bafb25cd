package train

import (
	"fmt"
	"math"
)

// Schedule is the factor on the learning rate over a run: linear warmup, a
// stable stretch, a decay, as torchtitan computes it. With W, S and D steps of
// each, the factor of the 0-based step s is
//
//	s < W      (s+1) / W
//	s < W+S    1
//	otherwise  min + (1-min)·curve(p),  p = (s+1-W-S) / D
//
// where the curve is 1-p, 1-√p or (1+cos πp)/2. S is one more than the steps
// left by W and D, so that the last step still learns.
type Schedule struct {
	Warmup, Stable, Decay int    // steps
	DecayType             string // "linear", "sqrt" or "cosine"
	MinFactor             float64
}

// NewSchedule lays the schedule of c over a run of steps. A warmup or decay that
// is longer than the run leaves room for is cut, which a warning tells.
func NewSchedule(c LRSchedulerConfig, steps int) (s Schedule, warnings []string) {
	s = Schedule{Warmup: c.WarmupSteps, DecayType: c.DecayType, MinFactor: c.MinLRFactor}
	if s.Warmup > steps {
		warnings = append(warnings, fmt.Sprintf("train: lr_scheduler.warmup_steps: %d is more than training.steps %d; %d is used", s.Warmup, steps, steps))
		s.Warmup = steps
	}
	s.Decay = steps - s.Warmup
	if c.DecayRatio != nil {
		// To even, as Python rounds.
		decay := int(math.RoundToEven(float64(steps) * *c.DecayRatio))
		if decay > s.Decay {
			warnings = append(warnings, fmt.Sprintf("train: lr_scheduler.decay_ratio: %v of training.steps is %d steps, but %d are left after %d of warmup; %d is used", *c.DecayRatio, decay, s.Decay, s.Warmup, s.Decay))
		}
		s.Decay = min(s.Decay, decay)
	}
	s.Stable = steps + 1 - s.Warmup - s.Decay
	return s, warnings
}

// Factor is what the learning rate of a 0-based step is multiplied by. After
// the end of the run it stays at its last value.
func (s Schedule) Factor(step int) float64 {
	if step < s.Warmup {
		return float64(step+1) / float64(s.Warmup)
	}
	if step < s.Warmup+s.Stable || s.Decay == 0 {
		return 1
	}
	p := min(1, float64(step+1-s.Warmup-s.Stable)/float64(s.Decay))
	return s.MinFactor + (1-s.MinFactor)*s.curve(p)
}

// curve falls from 1 at p = 0 to 0 at p = 1.
func (s Schedule) curve(p float64) float64 {
	switch s.DecayType {
	case "sqrt":
		return 1 - math.Sqrt(p)
	case "cosine":
		return (1 + math.Cos(math.Pi*p)) / 2
	default:
		return 1 - p
	}
}
