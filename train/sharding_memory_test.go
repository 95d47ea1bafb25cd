package train_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/train"
)

// shardings are FSDP, HSDP and FSDP beside expert and tensor parallelism: replicas, shards,
// experts, tensors.
var shardings = []struct {
	name    string
	degrees degrees
}{
	{"FSDP 2", degrees{1, 2, 1, 1}}, {"FSDP 4", degrees{1, 4, 1, 1}}, {"HSDP 2 × 2", degrees{2, 2, 1, 1}},
	{"EP 2 × FSDP 2", degrees{1, 2, 2, 1}}, {"EP 2 × FSDP 4", degrees{1, 4, 2, 1}}, {"EP 2 × HSDP 2 × 2", degrees{2, 2, 2, 1}},
	{"TP 2", degrees{1, 1, 1, 2}}, {"TP 2 × FSDP 2", degrees{1, 2, 1, 2}}, {"EP 2 × FSDP 2 × TP 2", degrees{1, 2, 2, 2}},
}

// shardedModel has rows that no number of shards divides evenly, or experts.
func shardedModel(d degrees) train.Model {
	if d[2]*d[3] > 1 {
		return latent(device.Float32)
	}
	return uneven(device.Float32, false)
}

// What is alive at each step of every Program on every rank is to the byte what an instrument
// sees that knows no plan, and so are the peak and what backward is given, however parameters
// are divided and gathered.
func TestMeasuredPeakOfShards(t *testing.T) {
	for i, s := range shardings {
		for j, mode := range []string{"none", "selective", "full"} {
			for k, reshard := range []string{"always", "never"} {
				if testing.Short() && (i+j+3*k)%6 != 0 {
					continue
				}
				c := sharded(t, s.degrees[0], s.degrees[1], s.degrees[2])
				c.Parallelism.TensorParallelDegree = s.degrees[3]
				c.Training.GlobalBatchSize = 2 // first and last write gradients, and add to them
				c.Parallelism.FSDPReshardAfterForward = reshard
				all, err := train.MeasurePeaks(context.Background(), c, mode, train.Options{Model: shardedModel(s.degrees)})
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range all {
					if m.Peak != m.Predicted || m.Carried != m.PredictedCarried || m.Differs != "" || !m.SameLoss {
						t.Errorf("%s, gathered again %s: %+v: want what is predicted, and the same loss when dead memory is poisoned", s.name, reshard, m)
					}
				}
			}
		}
	}
}

// Of parameters, gradients and moments each rank has a part of ⌈rows / shards⌉ rows: with n
// shards a rank holds an n-th and the padding that is stated, if there are as many rows.
func TestShardsHoldTheirPart(t *testing.T) {
	for _, s := range shardings {
		if s.degrees[3] > 1 {
			continue // what tensor groups divide, package parallel tests
		}
		name, shards := s.name, s.degrees[1]
		c := sharded(t, s.degrees[0], shards, s.degrees[2])
		r := newTrainer(t, c, train.Options{Model: shardedModel(s.degrees)})
		steps(t, r, 1)
		var held, whole, padding, undivided int64
		stores := r.Stores()
		for _, v := range stores[0].Variables() {
			if v.Kind != graph.Parameter && !strings.HasPrefix(v.Name, "optimizer.") && !strings.HasPrefix(v.Name, "gradient.") || len(v.Spec.Shape) == 0 {
				continue
			}
			p := stores[0].Variable(strings.TrimPrefix(v.Name, "gradient."))
			global := device.NewSpec(p.Spec.DType, p.Global...).Bytes()
			if p.Global[0] < shards {
				undivided += v.Spec.Bytes()
				continue
			}
			held += v.Spec.Bytes()
			whole += global
			rows := 0
			for rank, store := range stores[:shards] {
				part := store.Variable(p.Name)
				rows += part.Spec.Shape[0] - part.Padding()
				if !store.Variable(v.Name).Spec.Equal(v.Spec) {
					t.Errorf("%s: of %s rank %d has %v, rank 0 %v", name, v.Name, rank, store.Variable(v.Name).Spec, v.Spec)
				}
			}
			if rows != p.Global[0] {
				t.Errorf("%s: the ranks of a replica have %d of the %d rows of %s", name, rows, p.Global[0], v.Name)
			}
			row := v.Spec.Bytes() / int64(v.Spec.Shape[0])
			padding += int64(v.Spec.Shape[0]*shards-p.Global[0]) * row
		}
		if held*int64(shards) != whole+padding {
			t.Errorf("%s: a rank holds %d bytes, want (%d + %d) / %d", name, held, whole, padding, shards)
		}
		t.Log(fmt.Sprintf("%s: a rank holds %d bytes of parameters, gradients and moments of %d, %d of padding on all ranks; %d bytes are whole on each", name, held, whole, padding, undivided))
	}
}
