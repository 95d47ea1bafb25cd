package train

import (
	"context"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/model/llama3"
)

// A layout that cannot be says which product must equal, or what must divide, what.
func TestShardingIsValidated(t *testing.T) {
	dense := Llama3("dense", llama3.Config{Dim: 32, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 8, Hidden: 48, Vocab: 257,
		NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: device.Float32})
	_, experts := spread(t, 1, 1, 1, 1) // four of them
	for _, test := range []struct {
		shards, experts int
		reshard, muon   string
		model           Model
		want            string
	}{
		{0, 1, "", "", dense, "parallelism.data_parallel_shard_degree: must be at least 1: 0; set 1 to keep parameters whole"},
		{3, 2, "", "", experts.Model, "parallelism.data_parallel_shard_degree: must be 1 or a multiple of parallelism.expert_parallel_degree 2: 3; set 4"},
		{3, 1, "", "", experts.Model, "parallelism.data_parallel_shard_degree: must divide the 4 experts of deepseek_v3 spread: 3"},
		{8, 4, "", "", experts.Model, "must divide the 4 experts of deepseek_v3 spread: 8"},
		{2, 2, "", "", dense, "parallelism.expert_parallel_degree: must be 1 for llama3 dense, which has no experts: 2"},
		{2, 1, "sometimes", "", dense, `parallelism.fsdp_reshard_after_forward: unknown name: "sometimes"; known are "always", "never"`},
		{2, 1, "", muonName, dense, "of layers.0.attention.wq.weight [32 32] this rank has [16 32]; set parallelism.data_parallel_shard_degree=1"},
	} {
		c := DefaultConfig()
		c.Job.DumpFolder = t.TempDir()
		c.Training.Dataset = StringList{"moby_dick"}
		c.Training.SeqLen, c.Training.LocalBatchSize = 16, 1
		c.Parallelism.DataParallelShardDegree, c.Parallelism.ExpertParallelDegree = test.shards, test.experts
		if test.reshard != "" {
			c.Parallelism.FSDPReshardAfterForward = test.reshard
		}
		if test.muon != "" {
			c.Optimizer.Name = test.muon
		}
		r, err := New(context.Background(), c, Options{Model: test.model})
		if err == nil {
			r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d shards, %d experts: %v, want %q", test.shards, test.experts, err, test.want)
		}
	}
	l := newLayout(ParallelismConfig{DataParallelReplicateDegree: 2, DataParallelShardDegree: 4, ExpertParallelDegree: 2, TensorParallelDegree: 1})
	want := "data_parallel_replicate_degree 2 × the larger of data_parallel_shard_degree 4 and expert_parallel_degree 2 × tensor_parallel_degree 1 must equal the number of processes, which is 6; start 8 of them"
	if err := l.fits(6); err == nil || !strings.Contains(err.Error(), want) || l.fits(8) != nil {
		t.Errorf("%v, want %q", err, want)
	}
}
