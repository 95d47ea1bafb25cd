package train

import (
	"context"

	"github.com/lethe-go/lethe/internal/tensorboard"
	"github.com/lethe-go/lethe/moe"
)

// tensorboardHook writes what is reported as event files, with torchtitan's tags.
func tensorboardHook(c Config) Hook {
	var w *tensorboard.Writer
	var lr float64
	return Hook{
		Priority: ReportPriority,
		Start: func(_ context.Context, t *Trainer) (err error) {
			// A resumed run makes the steps behind its state again.
			w, err = tensorboard.Create(c.TensorboardPath(), t.Steps()+1)
			return err
		},
		AfterStep: func(_ context.Context, _ *Trainer, r StepResult) error {
			lr = r.LearningRate
			return nil
		},
		Report: func(_ context.Context, t *Trainer, m Metrics) error {
			return w.Write(m.Step, append(metricsValues(m, lr), loadValues(moe.Loads(t.Store()))...)...)
		},
		Validated: func(_ context.Context, t *Trainer, e Evaluation) error {
			return w.Write(t.Steps(), tensorboard.Value{Tag: "validation_metrics/loss", Scalar: e.Loss})
		},
		Saved: func(context.Context, *Trainer, int) error { return w.Sync() },
		Finish: func(context.Context, *Trainer, error) error {
			if w == nil {
				return nil
			}
			return w.Close()
		},
	}
}

func metricsValues(m Metrics, lr float64) []tensorboard.Value {
	return []tensorboard.Value{
		{Tag: "loss_metrics/global_avg_loss", Scalar: float64(m.Loss)},
		{Tag: "grad_norm", Scalar: float64(m.GradNorm)},
		{Tag: "lr", Scalar: lr},
		{Tag: "throughput(tps)", Scalar: float64(m.TPS)},
		{Tag: "tflops", Scalar: float64(m.TFLOPS)},
		{Tag: "mfu(%)", Scalar: float64(m.MFU)},
		{Tag: "executed_tflops", Scalar: float64(m.ExecutedTFLOPS)},
		{Tag: "memory/max_active(GiB)", Scalar: float64(m.MemoryBytes) / (1 << 30)},
		{Tag: "memory/max_active(%)", Scalar: float64(m.MemoryPct)},
		{Tag: "memory/saved(GiB)", Scalar: float64(m.SavedBytes) / (1 << 30)},
	}
}

// loadValues show the tokens of each expert as bars, expert by expert, and how even
// they are.
func loadValues(loads []moe.Load) []tensorboard.Value {
	var values []tensorboard.Value
	for _, l := range loads {
		values = append(values,
			tensorboard.Value{Tag: "expert_load/" + l.Layer, Histogram: tensorboard.Bars(l.Tokens)},
			tensorboard.Value{Tag: "expert_load_max_violation/" + l.Layer, Scalar: l.MaxViolation()},
			tensorboard.Value{Tag: "expert_load_entropy/" + l.Layer, Scalar: l.Entropy()})
	}
	return values
}
