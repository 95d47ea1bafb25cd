package train_test

import (
	"math"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

// placement is a layout that four sequences a step are trained on.
type placement struct {
	name                      string
	replicas, shards, experts int
	rows                      int // sequences of a microbatch
}

// placements of which all with one sequence a microbatch add up the same losses in the same
// order.
var placements = []placement{
	{"one rank", 1, 1, 1, 1},
	{"FSDP 2", 1, 2, 1, 1},
	{"FSDP 4", 1, 4, 1, 1},
	{"HSDP 2 × 2", 2, 2, 1, 1},
	{"replicas 2", 2, 1, 1, 1},
	{"EP 2", 1, 1, 2, 1},
	{"EP 2 × FSDP 2", 1, 2, 2, 1},
	{"EP 2 × FSDP 4", 1, 4, 2, 1},
	{"EP 4 × FSDP 4", 1, 4, 4, 1},
	{"one rank, two rows", 1, 1, 1, 2},
	{"FSDP 2, two rows", 1, 2, 1, 2},
}

func (p placement) config(t *testing.T) train.Config {
	c := tinyConfig(t)
	c.Parallelism.DataParallelReplicateDegree, c.Parallelism.DataParallelShardDegree, c.Parallelism.ExpertParallelDegree = p.replicas, p.shards, p.experts
	c.Training.LocalBatchSize, c.Training.GlobalBatchSize = p.rows, 4/(p.replicas*max(p.shards, p.experts))
	c.Training.Steps = 10
	return c
}

// A state that was saved on any layout loads on any other: it is the same to the bit, and the
// loss of the next step is that of not having moved, to the bit where losses are added up in
// the same order, else to 1e-6. Of the uneven model parts have padding, which is in no state.
func TestStatesMoveBetweenLayouts(t *testing.T) {
	for name, model := range map[string]train.Model{"experts": latent(device.Float32), "uneven": uneven(device.Float32, true)} {
		for i, before := range placements {
			if name == "uneven" && before.experts > 1 || testing.Short() && i > 2 && i != len(placements)-1 {
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
			for j, after := range placements {
				if name == "uneven" && after.experts > 1 || testing.Short() && j != (i+3)%len(placements) && j != (i+7)%len(placements) {
					continue
				}
				c := after.config(t)
				c.State.AsyncMode = "disabled"
				c.State.InitialLoadPath, c.State.InitialLoadModelOnly = saved.StatePath(), false
				moved := newTrainer(t, c, train.Options{Model: model})
				if err := moved.Save(); err != nil {
					t.Fatal(err)
				}
				got := stateOf(t, c, 2)
				if other := sameBits(want, got); other != "" || len(got) != len(want) {
					t.Errorf("%s, from %s to %s: %d tensors of %d, %s differs", name, before.name, after.name, len(got), len(want), other)
				}
				next := steps(t, moved, 1)[0].Loss
				if before.rows == after.rows && math.Float64bits(next) != math.Float64bits(loss) || math.Abs(next-loss) > 1e-6*loss {
					t.Errorf("%s, from %s to %s: the next loss is %v, without moving %v", name, before.name, after.name, next, loss)
				}
			}
		}
	}
}
