package train_test

import (
	"math"
	"testing"

	"github.com/lethe-go/lethe/train"
)

// A state says nothing of the ranks that saved it: saved on any layout it loads
// on any other, bit for bit, and the next step has the same loss.
func TestStateIsIndependentOfRanks(t *testing.T) {
	type layout struct{ replicas, experts int }
	layouts := []layout{{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}}
	// Four sequences a step, each a microbatch of some rank: the losses that are added up
	// are the same.
	config := func(l layout) train.Config {
		c := tinyConfig(t)
		c.Parallelism.DataParallelReplicateDegree, c.Parallelism.ExpertParallelDegree = l.replicas, l.experts
		c.Training.LocalBatchSize, c.Training.GlobalBatchSize = 1, 4/(l.replicas*l.experts)
		c.Training.Steps = 10
		return c
	}
	for _, mode := range []string{"async", "disabled"} {
		for _, before := range layouts {
			saved := config(before)
			saved.State.AsyncMode = mode
			r := newTrainer(t, saved, train.Options{Model: tinyLatent()})
			steps(t, r, 2)
			if mode == "async" {
				s, err := r.SaveAsync()
				if err != nil {
					t.Fatal(err)
				}
				steps(t, r, 1) // what is divided is copied too
				if err := s.Wait(); err != nil {
					t.Fatal(err)
				}
			} else if err := r.Save(); err != nil {
				t.Fatal(err)
			}
			want := stateOf(t, saved, 2)
			var loss float64
			for _, after := range layouts {
				c := config(after)
				c.State.AsyncMode = mode
				c.State.InitialLoadPath, c.State.InitialLoadModelOnly = saved.StatePath(), false
				r := newTrainer(t, c, train.Options{Model: tinyLatent()})
				if err := r.Save(); err != nil {
					t.Fatal(err)
				}
				got := stateOf(t, c, 2)
				if name := sameBits(want, got); name != "" || len(got) != len(want) {
					t.Errorf("%s, from %v to %v: %d tensors of %d, %s differs", mode, before, after, len(got), len(want), name)
				}
				next := steps(t, r, 1)[0].Loss
				if after == layouts[0] {
					loss = next
				}
				if math.Float64bits(next) != math.Float64bits(loss) {
					t.Errorf("%s, from %v to %v: the next loss is %v, on one rank %v", mode, before, after, next, loss)
				}
			}
		}
	}
}
