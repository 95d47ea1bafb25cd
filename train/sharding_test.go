package train_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/devicetest"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/train"
)

// uneven is a model of which two, four and eight ranks divide rows unevenly.
func uneven(dtype device.DType, tied bool) train.Model {
	return train.Llama3("uneven", llama3.Config{Dim: 24, Layers: 3, Heads: 3, KVHeads: 1, HeadDim: 8, Hidden: 50, Vocab: 257, TieEmbedding: tied,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: dtype})
}

// sharded is onRanks with parameters sharded.
func sharded(t testing.TB, replicas, shards, experts int) train.Config {
	c := onRanks(t, replicas, 1)
	c.Parallelism.DataParallelShardDegree, c.Parallelism.ExpertParallelDegree = shards, experts
	c.Training.GlobalBatchSize = 8 / (replicas * shards)
	return c
}

// However parameters are divided, loss and gradients are those of one rank.
func TestShardsTrainTheSame(t *testing.T) {
	for _, dtype := range []device.DType{device.Float32, device.Float64} {
		tolerance := 1e-5
		if dtype == device.Float64 {
			tolerance = 1e-10
		}
		for _, x := range []struct {
			model   train.Model
			layouts [][3]int // replicas, shards, experts
		}{
			{uneven(dtype, false), [][3]int{{1, 2, 1}, {1, 4, 1}, {2, 2, 1}, {1, 8, 1}}},
			{uneven(dtype, true), [][3]int{{1, 4, 1}}},
			{latent(dtype), [][3]int{{1, 2, 1}, {1, 2, 2}, {1, 4, 2}, {2, 2, 2}, {1, 4, 4}}},
		} {
			for _, rows := range []int{1, 2} {
				one := sharded(t, 1, 1, 1)
				one.Training.DType, one.Training.LocalBatchSize = dtype.String(), rows
				r := newTrainer(t, one, train.Options{Model: x.model})
				want, gradients := steps(t, r, 1)[0], r.Gradients()[0]
				for _, l := range x.layouts {
					name := fmt.Sprintf("%s, %v, %d rows, replicas, shards, experts %v", x.model.Name(), dtype, rows, l)
					c := sharded(t, l[0], l[1], l[2])
					c.Training.DType, c.Training.LocalBatchSize = dtype.String(), min(rows, c.Training.GlobalBatchSize)
					r := newTrainer(t, c, train.Options{Model: x.model})
					got := steps(t, r, 1)[0]
					wantOneRanks(t, name, r, got, want, gradients, tolerance)
				}
			}
		}
	}
}

// Sums have the order of ranks whether they are divided or not: with one microbatch each and
// no clipping, shards train what replicas do, bit for bit, under every plan and number of
// threads.
func TestShardsTrainTheBitsOfReplicas(t *testing.T) {
	run := func(replicas, shards int, change func(*train.Config)) ([]train.StepResult, map[string][]float64) {
		c := sharded(t, replicas, shards, 1)
		c.Training.GlobalBatchSize, c.Training.LocalBatchSize, c.Training.MaxNorm = 2, 2, 0
		change(&c)
		r := newTrainer(t, c, train.Options{Model: uneven(device.Float32, false)})
		results := steps(t, r, 3)
		return results, r.Parameters()[0]
	}
	losses, want := run(4, 1, func(*train.Config) {})
	i := 0
	for _, l := range [][2]int{{1, 4}, {2, 2}} {
		for _, mode := range []string{"none", "selective", "full"} {
			for _, reshard := range []string{"always", "never"} {
				i++
				got, parameters := run(l[0], l[1], func(c *train.Config) {
					c.ActivationCheckpoint.Mode, c.Parallelism.FSDPReshardAfterForward = mode, reshard
					c.Training.Threads = 1 + i%2
				})
				for step := range got {
					if math.Float64bits(got[step].Loss) != math.Float64bits(losses[step].Loss) {
						t.Errorf("%v, %s, %s: losses %v, replicas have %v", l, mode, reshard, got, losses)
						break
					}
				}
				if l[0] > 1 { // the replicas' sums are rounded before they are added
					for name, x := range want {
						near(t, fmt.Sprintf("%v: %s", l, name), parameters[name], x, 1e-2)
					}
				} else if !reflect.DeepEqual(parameters, want) {
					t.Errorf("%v, %s, %s: other parameters than replicas", l, mode, reshard)
				}
			}
		}
	}
}

// What is no parameter, such as the bias of routers, is the same on all ranks, bit for bit,
// and so is every part of a router or another parameter on the ranks that hold it.
func TestRanksAgreeOnWhatTheyShare(t *testing.T) {
	layouts := []degrees{{2, 1, 1, 1}, {1, 1, 2, 1}, {1, 1, 4, 1}, {2, 1, 2, 1}, {1, 1, 1, 4}, {1, 1, 2, 2}}
	for _, s := range shardings {
		layouts = append(layouts, s.degrees)
	}
	for i, d := range layouts {
		if testing.Short() && i%5 != 0 { // replicas, experts beside tensor groups, experts beside shards
			continue
		}
		r := newTrainer(t, together(t, d), train.Options{Model: latent(device.Float32)})
		steps(t, r, 2)
		stores, biases, routers := r.Stores(), 0, 0
		for _, v := range stores[0].Variables() {
			if v.Kind == graph.Scratch {
				continue
			}
			if strings.HasSuffix(v.Name, ".expert_bias") {
				biases++
				if !slices.Equal(v.Spec.Shape, v.Global) || !slices.ContainsFunc(devicetest.Floats(v.Tensor()), func(x float64) bool { return x != 0 }) {
					t.Errorf("%v: %s %v is not whole, or has not moved", d, v.Name, v.Spec)
				}
			}
			if strings.HasSuffix(v.Name, ".router.gate.weight") {
				routers++
			}
			parts := map[string][]byte{} // by place in the whole
			for rank, store := range stores {
				v := store.Variable(v.Name)
				place, part := fmt.Sprint(v.Offset), device.Raw(v.Tensor())
				if first, known := parts[place]; known && !bytes.Equal(part, first) {
					t.Errorf("%v: %s from %s on is another on rank %d", d, v.Name, place, rank)
				}
				parts[place] = part
			}
			if slices.Equal(v.Spec.Shape, v.Global) && len(parts) != 1 {
				t.Errorf("%v: %s is whole, but has %d places", d, v.Name, len(parts))
			}
		}
		if biases == 0 || routers == 0 {
			t.Errorf("%v: %d biases and %d routers", d, biases, routers)
		}
	}
}
