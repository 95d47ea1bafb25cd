package train_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/train"
)

// spy writes down when it is called.
func spy(name string, priority int, calls *[]string) train.Hook {
	say := func(t *train.Trainer, what string) error {
		*calls = append(*calls, fmt.Sprintf("%d %s %s", t.Steps(), name, what))
		return nil
	}
	return train.Hook{Name: name, Priority: priority,
		Start:      func(_ context.Context, t *train.Trainer) error { return say(t, "start") },
		BeforeStep: func(_ context.Context, t *train.Trainer) error { return say(t, "before") },
		AfterStep:  func(_ context.Context, t *train.Trainer, _ train.StepResult) error { return say(t, "after") },
		Report:     func(_ context.Context, t *train.Trainer, _ train.Metrics) error { return say(t, "report") },
		Validated:  func(_ context.Context, t *train.Trainer, _ train.Evaluation) error { return say(t, "validated") },
		Saved:      func(_ context.Context, t *train.Trainer, step int) error { return say(t, fmt.Sprint("saved ", step)) },
		Finish:     func(_ context.Context, t *train.Trainer, err error) error { return say(t, fmt.Sprint("finish ", err)) },
	}
}

func TestHooksAreCalledByPriority(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Steps, c.State.Interval = 2, 2
	c.Metrics.LogFreq = 2
	c.Validation.Enable, c.Validation.Freq, c.Validation.Steps = true, 2, 1
	var calls []string
	o := train.Options{Hooks: []train.Hook{spy("late", 150, &calls), spy("early", -1, &calls)}}
	if err := newTrainer(t, c, o).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0 early start", "0 late start",
		"0 early before", "0 late before",
		"1 early after", "1 early report", "1 late report", "1 late after",
		"1 early before", "1 late before",
		// What is due comes at its own priority, between the two.
		"2 early after", "2 early report", "2 late report", "2 early saved 2", "2 late saved 2", "2 late after",
		"2 early validated", "2 late validated",
		"2 late finish <nil>", "2 early finish <nil>",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("calls are\n%s\nwant\n%s", strings.Join(calls, "\n"), strings.Join(want, "\n"))
	}
}

func TestHookEndsRun(t *testing.T) {
	at := func(step int, err error) train.Hook {
		return train.Hook{Name: "watch", Priority: 1, AfterStep: func(_ context.Context, t *train.Trainer, _ train.StepResult) error {
			if t.Steps() == step {
				return err
			}
			return nil
		}}
	}
	broken := errors.New("broken")
	for _, test := range []struct {
		name  string
		err   error
		steps int
		saved []string
		want  string
	}{
		{"enough", fmt.Errorf("loss is low: %w", train.ErrEnough), 3, []string{"2", "3"}, ""},
		{"error", broken, 3, []string{"2"}, "train: hook watch after a step: broken"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := tinyConfig(t)
			var saved []string
			note := train.Hook{Saved: func(_ context.Context, _ *train.Trainer, step int) error {
				saved = append(saved, fmt.Sprint(step))
				return nil
			}}
			r := newTrainer(t, c, train.Options{Hooks: []train.Hook{at(test.steps, test.err), note}})
			err := r.Run(context.Background())
			if got := fmt.Sprint(err); test.want == "" && err != nil || test.want != "" && got != test.want {
				t.Errorf("Run returns %q, want %q", got, test.want)
			}
			if r.Steps() != test.steps || !slices.Equal(saved, test.saved) {
				t.Errorf("%d steps, states %v; want %d, %v", r.Steps(), saved, test.steps, test.saved)
			}
		})
	}
}
