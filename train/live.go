package train

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/lethe-go/lethe/internal/live"
	"github.com/lethe-go/lethe/moe"
)

// liveHook serves the run at metrics.http while it lasts: the page of WriteReport and its
// numbers for Prometheus. The goroutine of Run only stores numbers; the server reads these,
// and the files of the dump folder.
func liveHook(c Config, announce func(format string, args ...any)) Hook {
	var server *live.Server
	var n *liveNumbers
	var began time.Time
	return Hook{
		Priority: ReportPriority,
		Start: func(_ context.Context, t *Trainer) (err error) {
			n = newLiveNumbers(t.config, moe.Loads(t.Store()))
			n.step.set(float64(t.Steps()))
			server, err = live.Serve(c.Metrics.HTTP,
				live.Page{Path: "/", ContentType: "text/html; charset=utf-8", Content: n.report(c.Job.DumpFolder).Content},
				live.Page{Path: "/metrics", ContentType: prometheusType, Content: n.prometheus})
			if err != nil {
				return &ConfigError{fmt.Errorf("train: metrics.http: %w; choose another address, or port 0 for a free one", err)}
			}
			announce("live:    http://%s/, for Prometheus /metrics", server.Address())
			return nil
		},
		BeforeStep: func(context.Context, *Trainer) error {
			began = time.Now()
			return nil
		},
		AfterStep: func(_ context.Context, t *Trainer, r StepResult) error {
			n.stepped(t.Steps(), r, time.Since(began))
			return nil
		},
		Report: func(_ context.Context, _ *Trainer, m Metrics) error {
			n.reported(m)
			return nil
		},
		Validated: func(_ context.Context, _ *Trainer, e Evaluation) error {
			n.validated(e)
			return nil
		},
		Finish: func(context.Context, *Trainer, error) error {
			if server == nil {
				return nil
			}
			return server.Close()
		},
	}
}

// report is the page about the dump folder, made again when there is another line of
// metrics.
func (n *liveNumbers) report(folder string) *live.Cached {
	return &live.Cached{Version: n.lines.Load, Make: func() ([]byte, error) {
		var page bytes.Buffer
		err := WriteReport(&page, folder)
		return page.Bytes(), err
	}}
}
