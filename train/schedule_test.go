package train_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lethe-go/lethe/train"
)

func ratio(r float64) *float64 { return &r }

func TestScheduleFactor(t *testing.T) {
	for _, test := range []struct {
		name   string
		config train.LRSchedulerConfig
		steps  int
		want   []float64
	}{
		{"warmup 4, then linear over the rest: D = 6, S = 1",
			train.LRSchedulerConfig{WarmupSteps: 4, DecayType: "linear"}, 10,
			[]float64{1. / 4, 2. / 4, 3. / 4, 1, 1, 5. / 6, 4. / 6, 3. / 6, 2. / 6, 1. / 6}},
		{"warmup 2, decay 0.4 of 10: D = 4, S = 5",
			train.LRSchedulerConfig{WarmupSteps: 2, DecayRatio: ratio(0.4), DecayType: "linear"}, 10,
			[]float64{1. / 2, 1, 1, 1, 1, 1, 1, 3. / 4, 2. / 4, 1. / 4}},
		{"square root, to a tenth: D = 4, S = 1",
			train.LRSchedulerConfig{DecayType: "sqrt", MinLRFactor: 0.1}, 4,
			[]float64{1, 0.1 + 0.9*(1-0.5), 0.1 + 0.9*(1-math.Sqrt(0.5)), 0.1 + 0.9*(1-math.Sqrt(0.75))}},
		{"cosine, to 0.2: D = 4, S = 1; cos of π/4, π/2, 3π/4",
			train.LRSchedulerConfig{DecayType: "cosine", MinLRFactor: 0.2}, 4,
			[]float64{1, 0.2 + 0.8*(1+math.Sqrt2/2)/2, 0.2 + 0.8*0.5, 0.2 + 0.8*(1-math.Sqrt2/2)/2}},
		{"no decay at all",
			train.LRSchedulerConfig{WarmupSteps: 2, DecayRatio: ratio(0), DecayType: "linear"}, 5,
			[]float64{1. / 2, 1, 1, 1, 1, 1, 1, 1}},
		{"only warmup",
			train.LRSchedulerConfig{WarmupSteps: 3, DecayType: "linear"}, 3,
			[]float64{1. / 3, 2. / 3, 1}},
		{"half a step rounds to even: D = 2 of 2.5",
			train.LRSchedulerConfig{DecayRatio: ratio(0.5), DecayType: "linear"}, 5,
			[]float64{1, 1, 1, 1, 1. / 2}},
		{"beyond the end it stays",
			train.LRSchedulerConfig{DecayType: "linear", MinLRFactor: 0.5}, 2,
			[]float64{1, 0.75, 0.5, 0.5, 0.5}},
	} {
		s, warnings := train.NewSchedule(test.config, test.steps)
		if warnings != nil {
			t.Errorf("%s: %v", test.name, warnings)
		}
		for step, want := range test.want {
			if got := s.Factor(step); math.Abs(got-want) > 1e-15 {
				t.Errorf("%s: step %d: %v, want %v", test.name, step, got, want)
			}
		}
	}
}

func TestScheduleClamps(t *testing.T) {
	s, warnings := train.NewSchedule(train.LRSchedulerConfig{WarmupSteps: 200, DecayType: "linear"}, 10)
	if s.Warmup != 10 || s.Decay != 0 || len(warnings) != 1 ||
		warnings[0] != "train: lr_scheduler.warmup_steps: 200 is more than training.steps 10; 10 is used" {
		t.Errorf("%+v, %q", s, warnings)
	}
	s, warnings = train.NewSchedule(train.LRSchedulerConfig{WarmupSteps: 4, DecayRatio: ratio(0.8), DecayType: "linear"}, 10)
	if s.Decay != 6 || s.Stable != 1 || len(warnings) != 1 ||
		!strings.Contains(warnings[0], "0.8 of training.steps is 8 steps, but 6 are left after 4 of warmup; 6 is used") {
		t.Errorf("%+v, %q", s, warnings)
	}
}

func TestScheduleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.IntRange(1, 50).Draw(t, "steps")
		c := train.LRSchedulerConfig{
			WarmupSteps: rapid.IntRange(0, 60).Draw(t, "warmup"),
			DecayType:   rapid.SampledFrom([]string{"linear", "sqrt", "cosine"}).Draw(t, "type"),
			MinLRFactor: rapid.Float64Range(0, 1).Draw(t, "min"),
		}
		if rapid.Bool().Draw(t, "has ratio") {
			c.DecayRatio = ratio(rapid.Float64Range(0, 1).Draw(t, "ratio"))
		}
		s, _ := train.NewSchedule(c, steps)
		if s.Warmup+s.Stable+s.Decay != steps+1 || s.Warmup < 0 || s.Stable < 1 || s.Decay < 0 {
			t.Fatalf("%+v does not fill %d steps", s, steps)
		}
		for step := range steps {
			f := s.Factor(step)
			if !(f > 0 && f <= 1) {
				t.Fatalf("%+v: step %d: factor %v", s, step, f)
			}
			if next := s.Factor(step + 1); step+1 < s.Warmup && next < f || step >= s.Warmup && next > f {
				t.Fatalf("%+v: step %d: factor goes from %v to %v", s, step, f, next)
			}
		}
	})
}

func ExampleSchedule() {
	schedule, warnings := train.NewSchedule(train.LRSchedulerConfig{WarmupSteps: 2, DecayType: "linear"}, 6)
	for step := range 6 {
		fmt.Printf("%.2f ", schedule.Factor(step))
	}
	fmt.Println(warnings)
	// Output: 0.50 1.00 1.00 0.75 0.50 0.25 []
}
