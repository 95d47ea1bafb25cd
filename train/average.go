package train

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// averagePrefix and the name of a parameter make the name of its moving average.
const averagePrefix = "ema."

// movingAverage updates its second input, the average of the first:
//
//	average ← decay·average + (1 − decay)·parameter
//
// In the first step it is the parameter itself, as in torch's AveragedModel with
// get_ema_multi_avg_fn, so that it needs no correction for where it began.
type movingAverage struct {
	graph.Pure
	decay float64
}

func (movingAverage) Kind() string   { return "moving_average" }
func (movingAverage) Mutates() []int { return []int{1} }

func (movingAverage) Outputs([]device.Spec) ([]device.Spec, error) { return graph.TokenOutput(), nil }

func (movingAverage) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(3*float64(in[0].Len()), in, in[1:])
}

func (o movingAverage) Run(x *graph.Exec, _, in []device.Tensor) error {
	if x.Step == 1 {
		x.Copy(in[1], in[0])
	} else {
		x.Lerp(in[1], in[1], in[0], 1-o.decay)
	}
	return nil
}
