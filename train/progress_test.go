package train

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestProgressRender(t *testing.T) {
	s := progressState{step: 120, steps: 400, loss: 2.34117, tokens: 1024, typical: 150 * time.Millisecond, elapsed: 50 * time.Millisecond}
	long := s
	long.step, long.elapsed = 399, time.Hour // longer than others: that does not count back
	for _, test := range []struct {
		state progressState
		width int
		want  string
	}{
		{s, 200, "[============>                           ]  120/400  30%  ETA 0:42  loss 2.34117  6,827 tokens/s"},
		{s, 80, "[======>                ]  120/400  30%  ETA 0:42  loss 2.34117  6,827 tokens/s"},
		{s, 60, "120/400  30%  ETA 0:42  loss 2.34117  6,827 tokens/s"},
		{s, 50, "120/400  30%  ETA 0:42  loss 2.34117"},
		{s, 40, "120/400  30%  ETA 0:42  loss 2.34117"},
		{s, 14, "120/400  30%"},
		{s, 13, "120/400  30%"},
		{s, 12, "120/400"},
		{s, 8, "120/400"},
		{s, 7, ""},
		{s, 0, ""},
		{progressState{steps: 5}, 41, "[>                  ]  0/5  0%  ETA -:--"},
		{progressState{step: 5, steps: 5, tokens: 10, typical: time.Second}, 64, "[=============]  5/5  100%  ETA 0:00  loss 0.00000  10 tokens/s"},
		{long, 38, "399/400  99%  ETA 0:00  loss 2.34117"},
	} {
		if got := test.state.render(test.width); got != test.want || len(got) > max(test.width-1, 0) {
			t.Errorf("%d columns: %q, want %q", test.width, got, test.want)
		}
	}
}

func TestFormatETA(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0:00", 9600 * time.Millisecond: "0:10", 61 * time.Second: "1:01", 3600*time.Second + 62*time.Second: "1:01:02",
		47*time.Hour + 59*time.Minute: "47:59:00", 50 * time.Hour: "2d 2h",
	} {
		if got := formatETA(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// One step in the way of something else does not change the pace, a lasting change does.
func TestPaceIsTheMedian(t *testing.T) {
	p := &progress{}
	for range 10 {
		p.note(time.Second)
	}
	p.note(time.Minute)
	if p.state.typical != time.Second {
		t.Errorf("%v after one slow step", p.state.typical)
	}
	for range typicalSteps {
		p.note(3 * time.Second)
	}
	if p.state.typical != 3*time.Second || len(p.previous) != typicalSteps {
		t.Errorf("%v of %d steps", p.state.typical, len(p.previous))
	}
}

// screen is what a terminal shows of what was written to it: whole lines, and the line in
// which the cursor is.
type screen struct {
	mu      sync.Mutex
	written bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.Write(p)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

// show knows the escape codes that erase a line, which are all there are.
func show(written string) (lines []string, cursor string) {
	for _, line := range strings.SplitAfter(written, "\n") {
		if i := strings.LastIndex(line, "\r\x1b[K"); i >= 0 {
			line = line[i+len("\r\x1b[K"):]
		}
		if whole, ok := strings.CutSuffix(line, "\n"); ok {
			lines = append(lines, whole)
		} else {
			cursor = line
		}
	}
	return lines, cursor
}

// A run on a terminal shows a bar, and leaves the lines of any other run, however it ends.
func TestProgressLeavesNoTrace(t *testing.T) {
	broken := errors.New("broken")
	for name, end := range map[string]func() error{
		"end":   func() error { return nil },
		"error": func() error { return broken },
		"panic": func() error { panic("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			c, model := profiledConfig(t)
			c.Parallelism.ExpertParallelDegree = 1
			c.Metrics.LogFreq = 1
			c.State.Enable = false
			var terminal screen
			seen := false
			last := Hook{AfterStep: func(_ context.Context, r *Trainer, _ StepResult) error {
				// The goroutine that draws comes by within a second, or the test times out.
				for deadline := time.Now().Add(time.Minute); !seen && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
					_, cursor := show(terminal.text())
					seen = strings.Contains(cursor, "ETA")
				}
				if r.Steps() == 3 {
					return end()
				}
				return nil
			}}
			r, err := New(context.Background(), c, Options{Model: model, Log: &terminal, Hooks: []Hook{last}, terminalWidth: func() int { return 80 }})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			func() {
				defer func() { recover() }()
				err = r.Run(context.Background())
			}()
			if name == "error" && !errors.Is(err, broken) {
				t.Errorf("error %v", err)
			}
			lines, cursor := show(terminal.text())
			if !seen || cursor != "" {
				t.Errorf("the bar was seen: %v; %q is left at the end", seen, cursor)
			}
			count := 0
			for _, l := range lines {
				if strings.ContainsAny(l, "\r\x1b") || strings.Contains(l, "ETA") {
					t.Errorf("%q is left", l)
				}
				if strings.HasPrefix(l, "step: ") {
					count++
				}
			}
			if count != 3 || r.options.Log != &terminal {
				t.Errorf("%d lines about steps in %q", count, lines)
			}
		})
	}
}

// A run that cannot begin ends without a bar.
func TestProgressOfARunThatFailsAtOnce(t *testing.T) {
	c, model := profiledConfig(t)
	c.Parallelism.ExpertParallelDegree = 1
	var terminal screen
	start := Hook{Start: func(context.Context, *Trainer) error { return errors.New("no") }}
	r, err := New(context.Background(), c, Options{Model: model, Log: &terminal, Hooks: []Hook{start}, terminalWidth: func() int { return 80 }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Run(context.Background()); err == nil {
		t.Error("no error")
	}
	if _, cursor := show(terminal.text()); cursor != "" {
		t.Errorf("%q is left", cursor)
	}
}
