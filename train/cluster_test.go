package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/model/deepseekv3"
	"github.com/lethe-go/lethe/model/llama3"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/nn"
	"github.com/lethe-go/lethe/parallel"
)

// spread is a model with experts on some ranks. Its router sends tokens in turn, so that all
// ranks really get as many.
func spread(t *testing.T, replicas, shards, experts, tensors int) (Config, Options) {
	c := DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.GlobalBatchSize, c.Training.Threads = 16, 1, 3, 1
	c.Parallelism.DataParallelReplicateDegree, c.Parallelism.DataParallelShardDegree, c.Parallelism.ExpertParallelDegree = replicas, shards, experts
	c.Parallelism.TensorParallelDegree = tensors
	return c, Options{Model: DeepSeekV3("spread", deepseekv3.Config{Dim: 20, Layers: 2, DenseLayers: 1, Vocab: 257, Hidden: 30,
		Heads: 2, QLoRA: 16, KVLoRA: 16, NoPEDims: 8, RoPEDims: 4, ValueDim: 8, RoPE: attention.RoPE{Theta: 1e4},
		Experts: 4, TopK: 2, ExpertHidden: 30, SharedExperts: 1, Score: moe.Sigmoid, RouteNorm: true, RouteScale: 1,
		LoadBalance: 1e-3, ForceBalance: true, NormEps: 1e-5, DType: device.Float32})}
}

// Without a rank being there, the plan says what each holds, needs and sends: to the byte
// what a run does.
func TestClusterPlanIsWhatRanksDo(t *testing.T) {
	for i, l := range [][4]int{{1, 1, 1, 1}, {1, 2, 1, 1}, {1, 4, 1, 1}, {2, 2, 1, 1}, {1, 1, 4, 1}, {2, 1, 2, 1}, {1, 4, 2, 1}, {1, 4, 4, 1}, {1, 1, 1, 2}, {1, 2, 2, 2}} {
		if testing.Short() && i%2 != 0 {
			continue
		}
		c, o := spread(t, l[0], l[1], l[2], l[3])
		p, err := PlanForCluster(c, o, Cluster{})
		if err != nil {
			t.Fatal(err)
		}
		for j, row := range p.Rows {
			if testing.Short() && j != i%3 {
				continue
			}
			name := fmt.Sprintf("%v, %s", l, row.Mode)
			c.ActivationCheckpoint.Mode = row.Mode
			r, err := New(context.Background(), c, o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = r.Step(context.Background()); err != nil {
				t.Fatal(err)
			}
			if got := r.Traffic().collectives(); !maps.Equal(got, row.Collectives) {
				t.Errorf("%s: %+v are exchanged, want %+v", name, got, row.Collectives)
			}
			var peak int64
			first := r.ranks[0]
			for _, m := range first.machines.all() {
				peak = max(peak, m.Program().Memory(m.Counts()).Peak)
			}
			alone := newShards(r.ranks[:1], r.layout, len(r.ranks) == 1) // what a process of this rank saves
			if err := alone.reserve(true); err != nil {
				t.Fatal(err)
			}
			held, copied := first.store.Bytes(), alone.staging.Size()
			alone.close()
			if held != row.ParameterBytes+row.OptimizerBytes+row.OtherBytes || copied != row.StateCopyBytes || held+copied+peak != row.TotalBytes {
				t.Errorf("%s: %d bytes are held, %d copy the state and the peak is %d, planned %+v", name, held, copied, peak, row)
			}
			if r.Close(); row.PeakBytes > row.PeakBoundBytes || !row.Fits || row.Ranks != l[0]*max(l[1], l[2])*l[3] {
				t.Errorf("%s: %+v", name, row)
			}
		}
	}
}

// The simulated time is that of ranks whose clock only the link moves, and computing where
// that takes time.
func TestSimulatedTimeIsThatOfRanks(t *testing.T) {
	link := local.Link{Latency: time.Millisecond, Bandwidth: 1e6}
	for i, l := range [][4]int{{1, 2, 1, 1}, {2, 2, 1, 1}, {1, 4, 2, 1}, {1, 2, 2, 2}} {
		for j, mode := range modeNames {
			for k, cluster := range []Cluster{{Link: link}, {FLOPs: 1e7, MemoryBandwidth: 1e7, Link: link}} {
				if k != (i+j)%2 || testing.Short() && j != i%3 {
					continue
				}
				c, o := spread(t, l[0], l[1], l[2], l[3])
				c.ActivationCheckpoint.Mode = mode
				took, exposed, row := virtualStep(t, c, o, cluster)
				for what, x := range map[string][2]float64{"step": {took, row.StepSeconds}, "exposed": {exposed, row.ExposedSeconds}} {
					if math.Abs(x[0]-x[1]) > 1e-5 {
						t.Errorf("%v, %s, %+v: %s: the ranks take %v s, simulated are %v s", l, mode, cluster, what, x[0], x[1])
					}
				}
			}
		}
	}
}

// Where a layer computes for longer than the link takes for its parameters, forward and
// backward, less than a fifth of all that travels between shards is waited for.
func TestShardsOverlap(t *testing.T) {
	for _, reshard := range []string{reshardAlways, reshardNever} {
		c, o := spread(t, 1, 4, 1, 1)
		c.Training.GlobalBatchSize = 1
		c.Parallelism.FSDPReshardAfterForward = reshard
		o.Model = Llama3("deep", llama3.Config{Dim: 64, Layers: 8, Heads: 4, KVHeads: 4, HeadDim: 16, Hidden: 192, Vocab: 257,
			NormEps: 1e-5, RoPE: attention.RoPE{Theta: 1e4}, DType: device.Float32})
		_, exposed, row := virtualStep(t, c, o, Cluster{FLOPs: 5e7, Link: local.Link{Latency: 100 * time.Microsecond, Bandwidth: 5e6}})
		t.Logf("gathered again %s: %.4f s of %.4f s of communication are exposed, computing takes %.4f s", reshard, exposed, row.CommunicationSeconds, row.ComputeSeconds)
		if exposed <= 0 || exposed > 0.2*row.CommunicationSeconds || row.CommunicationSeconds > row.ComputeSeconds {
			t.Errorf("gathered again %s: %v s of %v s are exposed", reshard, exposed, row.CommunicationSeconds)
		}
	}
}

// virtualStep makes the Programs of a step on ranks with a clock that moves only while all
// sleep, for what the cluster's compute lanes and links take, and returns the seconds of the
// step and those exposed on the first rank, beside what is planned.
func virtualStep(t *testing.T, c Config, o Options, k Cluster) (took, exposed float64, planned ClusterRow) {
	t.Helper()
	o.Link = k.Link
	p, err := PlanForCluster(c, o, k)
	if err != nil {
		t.Fatal(err)
	}
	planned = p.Rows[slices.IndexFunc(p.Rows, func(r ClusterRow) bool { return r.Mode == c.ActivationCheckpoint.Mode })]
	synctest.Test(t, func(t *testing.T) {
		r, err := New(context.Background(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := r.Step(context.Background()); err != nil { // fills the inputs
			t.Fatal(err)
		}
		begin, before := time.Now(), r.Traffic()
		err = r.together(context.Background(), func(ctx context.Context, r *rank) error {
			run := func(m *graph.Machine) error {
				m.Trace(pace{k, m})
				return m.Run(ctx, graph.RunOptions{Step: 2})
			}
			for i := range r.batches {
				if err := run(r.machines.of(i, len(r.batches)).Machine); err != nil {
					return err
				}
			}
			return errors.Join(run(r.machines.norm), run(r.machines.update))
		})
		if err != nil {
			t.Fatal(err)
		}
		took, exposed = time.Since(begin).Seconds(), r.Traffic().Minus(before).Machines.Exposed.Seconds()
	})
	return took, exposed, planned
}

// pace has the compute lane of a Machine take the time of a cluster's.
type pace struct {
	cluster Cluster
	machine *graph.Machine
}

func (p pace) Begin(_ int, s *graph.Step) {
	if s == nil || s.Kind == graph.Wait || s.Lane != graph.Compute {
		return
	}
	var none Traffic
	if seconds, travels := p.cluster.seconds(s, collective.BalancedCounts(p.machine.Program().Graph), &none); !travels {
		time.Sleep(time.Duration(seconds * float64(time.Second)))
	}
}

func (pace) Waited(*graph.Step)   {}
func (pace) End(error)            {}
func (pace) Started(*graph.Step)  {}
func (pace) Finished(*graph.Step) {}

// A schedule counted by hand, of two layers that multiply 32 numbers each, in a second, and
// gather a parameter for that, in two:
//
//	link      |gather a   |gather b   |
//	compute   |wait       |a×a  |wait |b×a  |
func TestSimulationByHand(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	b := graph.New(graph.NewStore(dev, graph.StoreOptions{Layout: parallel.Layout{Experts: moe.ExpertLayout{Ranks: 1}, Shard: collective.Seat("shard", 0, 2)}}))
	var z graph.Value
	checkpoint.Region(b.Scope("layers", 0), checkpoint.None(), func() {
		x := b.Parameter("a", device.Float32, graph.Zeros, 4, 8)
		z = nn.Mul(x, x)
	})
	checkpoint.Region(b.Scope("layers", 1), checkpoint.None(), func() {
		z = nn.Mul(b.Parameter("b", device.Float32, graph.Zeros, 4, 8), z)
	})
	b.Output("z", z)
	p, err := compileBuilt(b)
	if err != nil {
		t.Fatal(err)
	}
	got := Cluster{FLOPs: 32, Link: local.Link{Latency: 2 * time.Second}}.simulate(p, nil)
	if got.now != 5 || got.compute != 2 || got.communication != 4 || got.exposed != 3 {
		t.Errorf("%v s, %v computing, %v communicating, %v exposed: want 5, 2, 4, 3", got.now, got.compute, got.communication, got.exposed)
	}
	if sent := got.traffic.Collectives[graph.ForwardPass][collective.KindAllGather]; sent != (flight.Count{Calls: 2, Sent: 2 * 64, Received: 2 * 64}) {
		t.Errorf("%+v is gathered", sent)
	}
}

// In mode "budget" the planner takes the memory of a rank, with tokens spread evenly over the
// experts, and says so if that is too little.
func TestClusterBudget(t *testing.T) {
	for _, l := range [][4]int{{1, 4, 1, 1}, {1, 4, 2, 1}} {
		if testing.Short() && l[2] == 1 {
			continue
		}
		c, o := spread(t, l[0], l[1], l[2], l[3])
		c.Training.SeqLen = 64
		c = within(c, 1) // of the cluster alone counts
		plan := func(k Cluster) *ClusterPlan {
			k.FLOPs, k.Link.Bandwidth = 1e12, 1e9
			p, err := PlanForCluster(c, o, k)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		all := plan(Cluster{Memory: 1 << 40}).Rows
		none, full := all[0], all[2]
		memory := (none.TotalBytes + full.TotalBytes) / 2
		p := plan(Cluster{Memory: memory})
		if row := p.Rows[3]; row.Mode != budgetMode || !row.Fits || row.TotalBytes > memory || row.SavedBytes <= full.SavedBytes || p.Rows[0].Fits || p.Infeasible != nil {
			t.Errorf("%v, within %d bytes: %+v", l, memory, row)
		}
		// The copy of the state may be elsewhere.
		host := full.StateCopyBytes
		if row := plan(Cluster{Memory: memory, HostMemory: host}).Rows[3]; !row.Fits || row.TotalBytes > memory || row.TotalBytes+host <= memory {
			t.Errorf("%v, within %d bytes and %d of the host: %+v", l, memory, host, row)
		}
		if row := plan(Cluster{Memory: 1 << 40, HostMemory: host - 1}).Rows[3]; row.Fits {
			t.Errorf("%v: a copy of %d bytes fits %d of the host", l, host, host-1)
		}
		little := full.TotalBytes / 2
		if p := plan(Cluster{Memory: little}); len(p.Rows) != 3 || p.Infeasible == nil || p.Infeasible.SmallestBytes <= little || p.Infeasible.SmallestBytes > full.TotalBytes {
			t.Errorf("%v, within %d bytes: %+v", l, little, p)
		}
	}
}

// Nothing of a job's size is allocated for a plan: 671B parameters on 256 ranks of which each
// holds a 256-th, but for padding.
func TestPlanOfALargeCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles three modes of 61 layers")
	}
	c := DefaultConfig()
	c.Training.Dataset = StringList{"moby_dick"}
	c.Model.Name, c.Model.Flavor = "deepseek_v3", "671B"
	c.Training.SeqLen, c.Training.LocalBatchSize = 4096, 1
	c.Parallelism.DataParallelShardDegree, c.Parallelism.ExpertParallelDegree = 256, 64
	p, err := PlanForCluster(c, Options{}, Cluster{Memory: 80 << 30, FLOPs: 4e14, Link: local.Link{Bandwidth: 5e10}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range p.Rows {
		if held := row.ParameterBytes * 256; held < 4*p.Model.Parameters() || held > 4*p.Model.Parameters()*1001/1000 || row.OptimizerBytes != 2*row.ParameterBytes {
			t.Errorf("%s: a rank holds %d bytes of %d parameters", row.Mode, row.ParameterBytes, p.Model.Parameters())
		}
		if row.Fits || !(row.StepSeconds > row.ComputeSeconds && row.StepSeconds < row.ComputeSeconds+row.CommunicationSeconds) {
			t.Errorf("%+v", row)
		}
	}
}
