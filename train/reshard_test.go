package train_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

// placement is a layout that four sequences a step are trained on.
type placement struct {
	name                      string
	replicas, shards, experts int
	tensors                   int
	rows                      int // sequences of a microbatch
}

// placements. All with one sequence a microbatch and as many ranks in a tensor group add up
// the same losses in the same order.
var placements = []placement{
	{"one rank", 1, 1, 1, 1, 1},
	{"FSDP 2", 1, 2, 1, 1, 1},
	{"FSDP 4", 1, 4, 1, 1, 1},
	{"HSDP 2 × 2", 2, 2, 1, 1, 1},
	{"replicas 2", 2, 1, 1, 1, 1},
	{"EP 2", 1, 1, 2, 1, 1},
	{"EP 2 × FSDP 2", 1, 2, 2, 1, 1},
	{"EP 2 × FSDP 4", 1, 4, 2, 1, 1},
	{"EP 4 × FSDP 4", 1, 4, 4, 1, 1},
	{"EP 2 × HSDP 2 × 2", 2, 2, 2, 1, 1},
	{"TP 2", 1, 1, 1, 2, 1},
	{"TP 4", 1, 1, 1, 4, 1},
	{"TP 2 × FSDP 2", 1, 2, 1, 2, 1},
	{"EP 2 × TP 2", 1, 1, 2, 2, 1},
	{"one rank, two rows", 1, 1, 1, 1, 2},
	{"FSDP 2, two rows", 1, 2, 1, 1, 2},
}

func (p placement) config(t *testing.T) train.Config {
	c := tinyConfig(t)
	c.Parallelism.DataParallelReplicateDegree, c.Parallelism.DataParallelShardDegree, c.Parallelism.ExpertParallelDegree = p.replicas, p.shards, p.experts
	c.Parallelism.TensorParallelDegree = p.tensors
	c.Training.LocalBatchSize, c.Training.GlobalBatchSize = p.rows, 4/(p.replicas*max(p.shards, p.experts))
	c.Training.Steps = 10
	return c
}

// placementsOf are the placements of a model with experts, or of one whose parts have padding.
func placementsOf(experts bool) []placement {
	return slices.DeleteFunc(slices.Clone(placements), func(p placement) bool {
		return p.name != "one rank" && p.name != "FSDP 4" && (p.experts*p.tensors > 1) != experts
	})
}

// A state that was saved on any layout loads on any other: it is the same to the bit, and the
// loss of the next step is that of not having moved, to the bit where losses are added up in
// the same order, else to 1e-6. Of the uneven model parts have padding, which is in no state.
func TestStatesMoveBetweenLayouts(t *testing.T) {
	for experts, model := range map[bool]train.Model{true: latent(device.Float32), false: uneven(device.Float32, true)} {
		list := placementsOf(experts)
		for i, before := range list {
			if testing.Short() && i%3 != 0 {
				continue
			}
			saved := before.config(t)
			saved.State.AsyncMode = "disabled"
			stayed := newTrainer(t, saved, train.Options{Model: model})
			steps(t, stayed, 2)
			if err := stayed.Save(); err != nil {
				t.Fatal(err)
			}
			want, loss := stateOf(t, saved, 2), steps(t, stayed, 1)[0].Loss
			for j, after := range list {
				next := (i + 1) % len(list)
				if testing.Short() && j != next {
					continue
				}
				name := fmt.Sprintf("%s, from %s to %s", model.Name(), before.name, after.name)
				c := after.config(t)
				c.State.AsyncMode = "disabled"
				c.State.InitialLoadPath, c.State.InitialLoadModelOnly = saved.StatePath(), false
				moved := newTrainer(t, c, train.Options{Model: model})
				if j == next {
					if err := moved.Save(); err != nil {
						t.Fatal(err)
					}
					got := stateOf(t, c, 2)
					if other := sameBits(want, got); other != "" || len(got) != len(want) {
						t.Errorf("%s: %d tensors of %d, %s differs", name, len(got), len(want), other)
					}
				}
				got := steps(t, moved, 1)[0].Loss
				if before.rows == after.rows && before.tensors == after.tensors && math.Float64bits(got) != math.Float64bits(loss) || math.Abs(got-loss) > 1e-6*loss {
					t.Errorf("%s: the next loss is %v, without moving %v", name, got, loss)
				}
				if err := moved.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
