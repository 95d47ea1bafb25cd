package train

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lethe-go/lethe/internal/statusline"
)

// redrawEvery is how often the bar may change. It is drawn by a goroutine of its own, so
// that a slow terminal does not slow a step.
const redrawEvery = 100 * time.Millisecond

// progress is the bar below the lines of a run on a terminal.
type progress struct {
	line *statusline.Line
	stop chan struct{}
	done chan struct{}

	mu       sync.Mutex
	state    progressState
	began    time.Time // of the step that is on; zero between steps
	previous []time.Duration
}

// progressState is what the bar tells.
type progressState struct {
	step, steps int // done, and of the whole run; steps is 0 until the run starts
	loss        float64
	tokens      int // of a step
	// typical is the median time of the last steps, 0 if there are none; elapsed is what
	// the step that is on has taken.
	typical, elapsed time.Duration
}

// typicalSteps is the number of steps whose median is the pace: some slow ones, when the
// machine has something else to do, do not change it.
const typicalSteps = 32

// showProgress puts a bar below the run's lines if they go to a terminal. What it returns
// takes it off again; call it in any case, so that the terminal is left clean.
func (l *loop) showProgress() (end func()) {
	width, ok := statusline.Terminal(l.options.Log)
	if l.options.terminalWidth != nil {
		width, ok = l.options.terminalWidth, true
	}
	if !ok {
		return func() {}
	}
	out := l.options.Log
	p := &progress{line: statusline.New(out, width), stop: make(chan struct{}), done: make(chan struct{})}
	l.progress, l.options.Log = p, p.line
	go p.draw()
	return func() {
		close(p.stop)
		<-p.done
		l.progress, l.options.Log = nil, out
	}
}

// hook follows the steps. Only they are on the clock: a state or a measurement between
// them changes no pace.
func (p *progress) hook() Hook {
	return Hook{
		Priority: ReportPriority,
		Start: func(_ context.Context, t *Trainer) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.state = progressState{step: t.Steps(), steps: t.config.Training.Steps}
			return nil
		},
		BeforeStep: func(context.Context, *Trainer) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.began = time.Now()
			return nil
		},
		AfterStep: func(_ context.Context, t *Trainer, r StepResult) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.note(time.Since(p.began))
			p.began = time.Time{}
			p.state.step, p.state.loss, p.state.tokens = t.Steps(), r.Loss, r.Tokens
			return nil
		},
	}
}

// note adds the time of a step.
func (p *progress) note(d time.Duration) {
	if len(p.previous) == typicalSteps {
		p.previous = slices.Delete(p.previous, 0, 1)
	}
	p.previous = append(p.previous, d)
	p.state.typical = median(p.previous)
}

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// draw is the goroutine that draws the bar until the run ends.
func (p *progress) draw() {
	defer close(p.done)
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// A terminal that is gone is none of training's business.
			_ = p.line.Set(p.render)
		case <-p.stop:
			_ = p.line.Set(nil)
			return
		}
	}
}

// render is the bar as it should be now.
func (p *progress) render(width int) string {
	p.mu.Lock()
	s := p.state
	if !p.began.IsZero() {
		s.elapsed = time.Since(p.began)
	}
	p.mu.Unlock()
	return s.render(width)
}

// Widths of the bar with its brackets.
const (
	narrowestBar = 12
	widestBar    = 42
)

// render is the bar for a terminal: what matters least is left out where it is narrow.
func (s progressState) render(width int) string {
	if s.steps == 0 {
		return ""
	}
	room := max(width-1, 0)
	text := ""
	for _, part := range s.parts() {
		if text != "" {
			part = "  " + part
		}
		if len(text)+len(part) > room {
			break
		}
		text += part
	}
	if left := min(room-len(text)-2, widestBar); left >= narrowestBar && text != "" {
		text = s.bar(left-2) + "  " + text
	}
	return text
}

// parts are what the bar says, what matters most first.
func (s progressState) parts() []string {
	parts := []string{fmt.Sprintf("%d/%d", s.step, s.steps), fmt.Sprintf("%d%%", 100*s.step/max(s.steps, 1))}
	if s.typical == 0 {
		return append(parts, "ETA -:--")
	}
	// The step that is on may take longer than others: that is no reason to count back.
	left := time.Duration(s.steps-s.step)*s.typical - min(s.elapsed, s.typical)
	parts = append(parts, "ETA "+formatETA(max(left, 0)), fmt.Sprintf("loss %.5f", s.loss))
	return append(parts, groupThousands(float64(s.tokens)/s.typical.Seconds(), 0)+" tokens/s")
}

func (s progressState) bar(width int) string {
	full := width * s.step / max(s.steps, 1)
	bar := strings.Repeat("=", full)
	if full < width {
		bar += ">" + strings.Repeat(" ", width-full-1)
	}
	return "[" + bar + "]"
}

// formatETA gives days and hours, or hours, minutes and seconds.
func formatETA(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	switch h := s / 3600; {
	case h >= 48:
		return fmt.Sprintf("%dd %dh", h/24, h%24)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
