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
		folder := t.TempDir()
		out, err := launch(processes, "TestMPIShards", folder)
		if err != nil {
			t.Fatalf("%d processes: %v\n%s", processes, err, out)
		}
		t.Logf("\n%s", out)
		for _, p := range processPlacements(processes) {
			c := p.onProcesses(t, folder)
			c.Parallelism = train.DefaultConfig().Parallelism
			c.Training.GlobalBatchSize = 8
			if r := newTrainer(t, c, train.Options{Model: p.model(device.Float64)}); r.Steps() != 2 {
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

func (p placement) model(dtype device.DType) train.Model {
	if p.experts*p.tensors > 1 {
		return latent(dtype)
	}
	return uneven(dtype, false)
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
		p.trainLikeOne(t, w, folder, device.Float32, 1e-5)
		r := p.trainLikeOne(t, w, folder, device.Float64, 1e-10)
		if err := r.Save(); err != nil {
			t.Error(err)
		}
		c := p.onProcesses(t, folder)
		if from := saved[p.experts*p.tensors > 1]; from != "" {
			c.State.InitialLoadPath, c.State.InitialLoadModelOnly = from, false
			c.Job.DumpFolder += "-moved"
			moved := newTrainer(t, c, train.Options{Model: p.model(device.Float64), World: w})
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

// trainLikeOne trains two steps of this process's part, and the same on one rank.
func (p placement) trainLikeOne(t *testing.T, w *mpi.World, folder string, dtype device.DType, within float64) *train.Trainer {
	alone := onRanks(t, 1, 1)
	alone.Training.DType, alone.Training.LocalBatchSize = dtype.String(), 2
	one := newTrainer(t, alone, train.Options{Model: p.model(dtype)})
	c := p.onProcesses(t, folder)
	c.Training.DType, c.State.Enable = dtype.String(), dtype == device.Float64
	r := newTrainer(t, c, train.Options{Model: p.model(dtype), World: w})
	for step, tolerance := range []float64{within, 10 * within} { // after the first parameters differ by rounding
		want, got := steps(t, one, 1)[0], steps(t, r, 1)[0]
		name := fmt.Sprintf("%s, %v, step %d: ", p.name, dtype, step+1)
		near(t, name+"loss", []float64{got.Loss}, []float64{want.Loss}, tolerance)
		near(t, name+"gradient norm", []float64{got.GradNorm}, []float64{want.GradNorm}, tolerance)
		nearParts(t, name, r.Stores()[0], one.Gradients()[0], tolerance)
	}
	if w.Rank() == 0 {
		t.Logf("%s, %v: %d gradients are those of one rank within %v", p.name, dtype, len(one.Gradients()[0]), within)
	}
	return r
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
