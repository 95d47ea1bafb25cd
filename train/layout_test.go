package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

// onRanks is a config of eight sequences a step on replicas × experts ranks, with an odd
// number of tokens and some of them without a label. The ranks compare what they have in
// common after each step.
func onRanks(t testing.TB, replicas, experts int) train.Config {
	c := tinyConfig(t)
	c.Parallelism.DataParallelReplicateDegree, c.Parallelism.ExpertParallelDegree = replicas, experts
	c.Training.SeqLen = 33
	c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 1, 8/(replicas*experts)
	c.Optimizer.LR = 1e-3
	c.State.Enable = false
	c.Comm.CheckReplicas = 1
	return c
}

// layouts are EP 1, 2, 4 × DP 1, 2.
func layouts(yield func(replicas, experts int) bool) {
	for _, replicas := range []int{1, 2} {
		for _, experts := range []int{1, 2, 4} {
			if !yield(replicas, experts) {
				return
			}
		}
	}
}

// Any layout trains what one rank does. What is added in another order may differ by
// rounding; what ranks hold in common may not differ at all.
func TestLayoutsTrainTheSame(t *testing.T) {
	for _, dtype := range []device.DType{device.Float32, device.Float64} {
		tolerance := 1e-5
		if dtype == device.Float64 {
			tolerance = 1e-10
		}
		for _, rows := range []int{1, 2} {
			var want train.StepResult
			var gradients map[string][]float64
			for replicas, experts := range layouts {
				name := fmt.Sprintf("%v, %d rows, %d replicas of %d ranks", dtype, rows, replicas, experts)
				c := onRanks(t, replicas, experts)
				c.Training.DType = dtype.String()
				c.Training.LocalBatchSize = min(rows, c.Training.GlobalBatchSize)
				r := newTrainer(t, c, train.Options{Model: latent(dtype)})
				got := steps(t, r, 1)[0]
				if replicas*experts == 1 {
					want, gradients = got, r.Gradients()[0]
				}
				if got.Tokens != want.Tokens || got.Valid != want.Valid || got.LearningRate != want.LearningRate {
					t.Errorf("%s: %+v, want %+v", name, got, want)
				}
				wantOneRanks(t, name, r, got, want, gradients, tolerance)
			}
		}
	}
}

// wantOneRanks holds the first step of r, and its gradients, against those of one rank, and
// then trains on: what replicas hold in common stays the same.
func wantOneRanks(t *testing.T, name string, r *train.Trainer, got, want train.StepResult, gradients map[string][]float64, tolerance float64) {
	t.Helper()
	near(t, name+": loss", []float64{got.Loss}, []float64{want.Loss}, tolerance)
	near(t, name+": gradient norm", []float64{got.GradNorm}, []float64{want.GradNorm}, tolerance)
	all := r.Gradients()
	for p, g := range gradients {
		near(t, name+": gradient of "+p, all[0][p], g, tolerance)
	}
	steps(t, r, 2)
	for _, all := range [][]map[string][]float64{r.Gradients(), r.Parameters()} {
		for replica, x := range all {
			if !reflect.DeepEqual(x, all[0]) {
				t.Errorf("%s: replica %d has other gradients or parameters", name, replica)
			}
		}
	}
}

// A model without experts is replicated too. Where every rank has one microbatch of the
// one rank's, the loss is the same bit for bit.
func TestReplicasWithoutExperts(t *testing.T) {
	var want train.StepResult
	for _, replicas := range []int{1, 2, 4, 8} {
		r := newTrainer(t, onRanks(t, replicas, 1), train.Options{})
		got := steps(t, r, 1)[0]
		if replicas == 1 {
			want = got
		}
		if math.Float64bits(got.Loss) != math.Float64bits(want.Loss) || got.Valid != want.Valid {
			t.Errorf("%d replicas: %+v, want %+v", replicas, got, want)
		}
		near(t, "gradient norm", []float64{got.GradNorm}, []float64{want.GradNorm}, 1e-5)
	}
}

// What does not fit is refused with the numbers that have to fit.
func TestLayoutIsValidated(t *testing.T) {
	for _, test := range []struct {
		replicas, experts int
		model             train.Model
		want              string
	}{
		{0, 1, nil, "parallelism.data_parallel_replicate_degree: must be at least 1: 0"},
		{2, 2, nil, "parallelism.expert_parallel_degree: must be 1 for llama3 tiny, which has no experts: 2; set 1, and parallelism.data_parallel_replicate_degree=4"},
		{2, 3, latent(device.Float32), "parallelism.expert_parallel_degree: must divide the 4 experts of deepseek_v3 tiny: 3"},
	} {
		c := tinyConfig(t)
		c.Parallelism.DataParallelReplicateDegree, c.Parallelism.ExpertParallelDegree = test.replicas, test.experts
		o := train.Options{Model: test.model}
		if o.Model == nil {
			o.Model = tiny(device.Float32)
		}
		_, err := train.New(context.Background(), c, o)
		var config *train.ConfigError
		if !errors.As(err, &config) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d × %d: %v, want %q", test.replicas, test.experts, err, test.want)
		}
	}
}

// near compares with a tolerance relative to the largest value.
func near(t *testing.T, name string, got, want []float64, tolerance float64) {
	t.Helper()
	largest := 0.0
	for _, x := range want {
		largest = max(largest, math.Abs(x))
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", name, len(got), len(want))
		return
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tolerance*largest) {
			t.Errorf("%s is %v, want %v (element %d)", name, got[i], want[i], i)
			return
		}
	}
}

// On replicas too, what is kept and what is computed again changes no bit, nor does the
// number of threads.
func TestReplicasAreTheSameUnderEveryPlan(t *testing.T) {
	var want []map[string][]float64
	var losses []train.StepResult
	for i, mode := range []string{"none", "selective", "full"} {
		c := onRanks(t, 2, 2)
		c.ActivationCheckpoint.Mode, c.Training.Threads = mode, 1+i
		r := newTrainer(t, c, train.Options{Model: tinyLatent()})
		got := steps(t, r, 3)
		if want == nil {
			want, losses = r.Parameters(), got
		}
		if !reflect.DeepEqual(r.Parameters(), want) || !reflect.DeepEqual(got, losses) {
			t.Errorf("%s with %d threads trains other bits than none: %v, want %v", mode, 1+i, got, losses)
		}
	}
}
