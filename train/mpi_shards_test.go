//go:build mpi

package train_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/ranktest"
	"github.com/lethe-go/lethe/train"
)

// However processes divide parameters, loss and gradients are those of one rank, and what
// they save, each its shards, loads on one rank and on the processes, divided otherwise.
func TestMPIShards(t *testing.T) {
	if folder, is := inProcess(t); is {
		shardAsProcess(t, folder)
		return
	}
	for _, processes := range []int{2, 4} {
		if processes > 2 && testing.Short() {
			continue
		}
		folder := t.TempDir()
		if out, err := launch(processes, "TestMPIShards", folder); err != nil {
			t.Fatalf("%d processes: %v\n%s", processes, err, out)
		}
		for _, p := range processPlacements(processes) {
			c := p.onProcesses(t, folder)
			c.Parallelism = train.DefaultConfig().Parallelism
			c.Training.GlobalBatchSize = 8
			if r := newTrainer(t, c, train.Options{Model: p.model()}); r.Steps() != 2 {
				t.Errorf("%s: the state that loads on one rank is of step %d, want 2", p.name, r.Steps())
			} else {
				steps(t, r, 1)
			}
		}
	}
}

// processPlacements are layouts of so many processes.
func processPlacements(processes int) []placement {
	return slices.DeleteFunc(slices.Clone(placements), func(p placement) bool {
		return p.ranks() != processes || p.shards == 1 || p.rows > 1
	})
}

func (p placement) ranks() int { return p.replicas * max(p.shards, p.experts) * p.tensors }

func (p placement) model() train.Model {
	if p.experts*p.tensors > 1 {
		return latent(device.Float64)
	}
	return uneven(device.Float64, false)
}

func (p placement) onProcesses(t *testing.T, folder string) train.Config {
	return onProcesses(t, degrees{p.replicas, p.shards, p.experts, p.tensors}, folder)
}

// shardAsProcess is the part of one process.
func shardAsProcess(t *testing.T, folder string) {
	w, err := mpi.Init(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	saved := map[bool]string{} // by the layout before, of a model with experts or without
	for _, p := range processPlacements(w.Size()) {
		alone := onRanks(t, 1, 1)
		alone.Training.DType, alone.Training.LocalBatchSize = "float64", 2
		one := newTrainer(t, alone, train.Options{Model: p.model()})
		c := p.onProcesses(t, folder)
		r := newTrainer(t, c, train.Options{Model: p.model(), World: w})
		for step := range 2 {
			want, got := steps(t, one, 1)[0], steps(t, r, 1)[0]
			name := fmt.Sprintf("%s, step %d: ", p.name, step+1)
			near(t, name+"loss", []float64{got.Loss}, []float64{want.Loss}, 1e-10)
			near(t, name+"gradient norm", []float64{got.GradNorm}, []float64{want.GradNorm}, 1e-10)
			nearParts(t, name, r.Stores()[0], one.Gradients()[0], 1e-10)
		}
		if err := r.Save(); err != nil {
			t.Error(err)
		}
		if from := saved[p.experts*p.tensors > 1]; from != "" {
			c.State.InitialLoadPath, c.State.InitialLoadModelOnly = from, false
			c.Job.DumpFolder += "-moved"
			moved := newTrainer(t, c, train.Options{Model: p.model(), World: w})
			if moved.Steps() != 2 {
				t.Errorf("%s: step %d, want 2", p.name, moved.Steps())
			}
			steps(t, moved, 1)
		}
		saved[p.experts*p.tensors > 1] = p.onProcesses(t, folder).StatePath()
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// nearParts holds this rank's parts of gradients against those of one rank.
func nearParts(t *testing.T, name string, store *graph.Store, want map[string][]float64, tolerance float64) {
	t.Helper()
	for p, whole := range want {
		v := store.Variable(p)
		part := train.Floats(store.Variable("gradient." + p).Tensor())
		shape := slices.Clone(v.Spec.Shape)
		shape[0] -= v.Padding()
		live := device.NewSpec(device.Uint8, shape...).Len()
		mine := make([]float64, live)
		for i := range mine {
			mine[i] = whole[ranktest.Place(v.Global, shape, v.Offset, i)]
		}
		near(t, name+"gradient of "+p, part[:live], mine, tolerance)
	}
}
