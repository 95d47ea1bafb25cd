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
	c.State.AsyncMode = "disabled"
	return c
}

// saved is a state after two steps on a placement, and the loss of the third there.
type saved struct {
	on     placement
	path   string
	values map[string][]float32
	loss   float64
}

// A state that was saved on any layout loads on any other: it is the same to the bit, and the
// loss of the next step is that of not having moved, to the bit where losses are added up in
// the same order, else to 1e-6. Of the uneven model parts have padding, which is in no state.
func TestStatesMoveBetweenLayouts(t *testing.T) {
	for _, x := range []struct {
		model train.Model
		has   func(placement) bool
	}{
		{latent(device.Float32), func(placement) bool { return true }},
		{uneven(device.Float32, true), func(p placement) bool { return p.experts*p.tensors == 1 }},
	} {
		var states []saved
		for i, p := range placements {
			if x.has(p) && (i%3 == 0 || !testing.Short()) {
				states = append(states, p.save(t, x.model))
			}
		}
		for i, before := range states {
			after := states[(i+1)%len(states)].on
			c := after.config(t)
			r := newTrainer(t, c, train.Options{Model: x.model})
			// Saved again at once, a state is what it was.
			goOnFrom(t, r, before.path)
			if err := r.Save(); err != nil {
				t.Fatal(err)
			}
			got := stateOf(t, c, 2)
			if other := sameBits(before.values, got); other != "" || len(got) != len(before.values) {
				t.Errorf("%s, from %s to %s: %d tensors of %d, %s differs", x.model.Name(), before.on.name, after.name, len(got), len(before.values), other)
			}
			for _, before := range states {
				goOnFrom(t, r, before.path)
				got := steps(t, r, 1)[0].Loss
				inOrder := before.on.rows == after.rows && before.on.tensors == after.tensors
				if inOrder && math.Float64bits(got) != math.Float64bits(before.loss) || math.Abs(got-before.loss) > 1e-6*before.loss {
					t.Errorf("%s, from %s to %s: the next loss is %v, without moving %v", x.model.Name(), before.on.name, after.name, got, before.loss)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		t.Logf("%s: states of %d layouts go on on each", x.model.Name(), len(states))
	}
}

func (p placement) save(t *testing.T, m train.Model) saved {
	c := p.config(t)
	r := newTrainer(t, c, train.Options{Model: m})
	steps(t, r, 2)
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	s := saved{on: p, path: c.StatePath(), values: stateOf(t, c, 2), loss: steps(t, r, 1)[0].Loss}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return s
}

func goOnFrom(t *testing.T, r *train.Trainer, path string) {
	t.Helper()
	if err := r.GoOnFrom(path); err != nil {
		t.Fatal(err)
	}
}
