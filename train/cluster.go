package train

import (
	"errors"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Cluster is what a job is planned for: ranks that are alike. What is 0 has no limit.
type Cluster struct {
	// Memory of a rank in bytes.
	Memory int64
	// HostMemory in bytes is what a rank has on the host, beside Memory, for the copy of the
	// state while that is written and for buffers to offload. If it is 0 Memory holds them.
	HostMemory int64
	// FLOPs a second, and bytes of memory a second, of a rank.
	FLOPs, MemoryBandwidth float64
	// Link of a rank to the others.
	Link local.Link
}

// ClusterPlan is what a config takes of a cluster under every activation checkpointing mode.
type ClusterPlan struct {
	Model Model
	Ranks int
	// Rows are in the order none, selective, full, and budget if that is the config's own mode
	// and the cluster says what memory there is: within that the planner decides.
	Rows []ClusterRow
	// Infeasible is why there is no row for the budget; nil if there is one, or none is asked for.
	Infeasible *BudgetError
}

// ClusterRow is what one rank needs under a mode. All ranks need the same, if tokens are
// spread evenly over the experts.
type ClusterRow struct {
	Mode                        string `json:"mode"`
	Ranks                       int    `json:"ranks"`
	DataParallelReplicateDegree int    `json:"data_parallel_replicate_degree"`
	DataParallelShardDegree     int    `json:"data_parallel_shard_degree"`
	ExpertParallelDegree        int    `json:"expert_parallel_degree"`
	TensorParallelDegree        int    `json:"tensor_parallel_degree"`

	// What a rank holds of parameters, their gradients, the optimizer's moments and averages,
	// and everything else, such as tables of angles. Gradients live in the arena, and are part
	// of PeakBytes. PaddingBytes are by how much the parts of all ranks of a replica are more
	// than what they divide.
	ParameterBytes int64 `json:"parameter_bytes"`
	GradientBytes  int64 `json:"gradient_bytes"`
	OptimizerBytes int64 `json:"optimizer_bytes"`
	OtherBytes     int64 `json:"other_bytes"`
	PaddingBytes   int64 `json:"padding_bytes"`
	// StateCopyBytes hold the copy of what the rank writes of the state: 0 if a run saves
	// nothing, or not as it goes on. OffloadBufferBytes are those between memory and a file.
	StateCopyBytes     int64 `json:"state_copy_bytes"`
	OffloadBufferBytes int64 `json:"offload_buffer_bytes"`
	// Bytes that are carried over from forward to backward of one microbatch, and most bytes
	// that are alive in the arena at one time; PeakBoundBytes if all tokens of a group go to
	// the experts of one rank.
	SavedBytes     int64 `json:"saved_bytes"`
	PeakBytes      int64 `json:"peak_bytes"`
	PeakBoundBytes int64 `json:"peak_bound_bytes"`
	// TotalBytes are the peak and all that a rank holds beside the arena, but what is in HostMemory; Fits says
	// whether the cluster's ranks have as much of both.
	TotalBytes int64 `json:"total_bytes"`
	Fits       bool  `json:"fits"`

	// Collectives of one optimizer step, by kind: what a rank sends and receives.
	Collectives map[string]ByPass[flight.Count] `json:"collectives"`
	SentBytes   int64                           `json:"sent_bytes"`
	// Of one optimizer step, in seconds: what the compute lane computes, what collectives
	// take on theirs, for how much of that nothing is computed, and the whole.
	ComputeSeconds       float64 `json:"compute_seconds"`
	CommunicationSeconds float64 `json:"communication_seconds"`
	ExposedSeconds       float64 `json:"exposed_seconds"`
	StepSeconds          float64 `json:"step_seconds"`
	// TPS is tokens a second of all ranks.
	TPS Float `json:"tps"`
}

// PlanForCluster builds and compiles what one rank of a config would run, and follows it
// step by step through the times that the cluster would take. There need be no other ranks,
// and none of the memory is allocated, so that the job may be of any size.
func PlanForCluster(c Config, o Options, cluster Cluster) (*ClusterPlan, error) {
	p, err := planForCluster(c, o, cluster)
	if err != nil {
		return nil, &ConfigError{err}
	}
	return p, nil
}

func planForCluster(c Config, o Options, cluster Cluster) (*ClusterPlan, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dev, closeDevice, err := openDevice(o.Device, c.Training.Threads)
	if err != nil {
		return nil, err
	}
	defer closeDevice()
	o.Device = dev
	plan := &ClusterPlan{Ranks: newLayout(c.Parallelism).ranks()}
	modes := slices.Clone(reportedModes)
	if c.ActivationCheckpoint.Mode == budgetMode && cluster.Memory > 0 {
		modes = append(modes, budgetMode)
	}
	for _, mode := range modes {
		c.ActivationCheckpoint.Mode = mode
		row, model, err := cluster.row(c, o)
		if errors.As(err, &plan.Infeasible) {
			break // budget is the last
		}
		if err != nil {
			return nil, err
		}
		plan.Model = model
		plan.Rows = append(plan.Rows, row)
	}
	return plan, nil
}

// costs are the cluster's rates for a planner; those of which nothing is said are the default.
func (k Cluster) costs() checkpoint.Roofline {
	r := checkpoint.DefaultCosts()
	for _, x := range []struct {
		rate *float64
		of   float64
	}{{&r.FLOPs, k.FLOPs}, {&r.Bandwidth, k.MemoryBandwidth}, {&r.LinkBandwidth, k.Link.Bandwidth}} {
		if x.of > 0 {
			*x.rate = x.of
		}
	}
	if k.Link.Latency > 0 {
		r.LinkLatency = k.Link.Latency.Nanoseconds()
	}
	return r
}

// row plans rank 0 under the config's mode.
func (k Cluster) row(c Config, o Options) (ClusterRow, Model, error) {
	l := newLayout(c.Parallelism)
	seats := l.seats(0)
	store := newStore(o.Device, c, 0, seats)
	if l.ranks() > 1 {
		c.Parallelism.Backend = mpiBackend // each writes its part of a state
	}
	compiler, err := newCompiler(c, o, store, seats)
	if err != nil {
		return ClusterRow{}, nil, err
	}
	if c.ActivationCheckpoint.Mode == budgetMode {
		b := newBudget(k.Memory, k.costs())
		b.counts, b.apart = collective.BalancedCounts, k.HostMemory > 0
		compiler.budget = b
	}
	p, _, err := compiler.compile()
	if err != nil {
		return ClusterRow{}, nil, err
	}
	row := ClusterRow{Mode: c.ActivationCheckpoint.Mode, Ranks: l.ranks(), DataParallelReplicateDegree: l.replicas,
		DataParallelShardDegree: l.shards, ExpertParallelDegree: l.experts, TensorParallelDegree: l.tensors, Collectives: map[string]ByPass[flight.Count]{}}
	row.hold(store, l)
	held := compiler.beside(p.all()...)
	row.StateCopyBytes, row.OffloadBufferBytes = held.stateCopy, held.ring
	var t simulation
	for _, q := range p.all() {
		counts := collective.BalancedCounts(q.Graph)
		m := q.Memory(counts)
		row.PeakBytes, row.PeakBoundBytes = max(row.PeakBytes, m.Peak), max(row.PeakBoundBytes, q.Bound().Peak)
		if p.trains(q) {
			row.SavedBytes = max(row.SavedBytes, m.Saved)
		}
		if n := p.stepCount(q, c.Training.Microbatches()); n > 0 {
			t.add(n, k.simulate(q, counts))
		}
	}
	row.TotalBytes = held.bytes() + row.PeakBytes
	if k.HostMemory > 0 {
		row.TotalBytes -= held.host()
	}
	row.Fits = (k.Memory == 0 || row.TotalBytes <= k.Memory) && (k.HostMemory == 0 || held.host() <= k.HostMemory)
	for kind, counts := range t.traffic.collectives() {
		row.Collectives[kind] = counts
		for _, n := range []flight.Count{counts.Forward, counts.Rerun, counts.Backward, counts.Update} {
			row.SentBytes += n.Sent
		}
	}
	row.ComputeSeconds, row.CommunicationSeconds, row.ExposedSeconds, row.StepSeconds = t.compute, t.communication, t.exposed, t.now
	tokens := float64(l.dataRanks() * c.Training.LocalBatchSize * c.Training.Microbatches() * c.Training.SeqLen)
	row.TPS = Float(tokens / t.now)
	return row, compiler.model, nil
}

// hold counts what a rank keeps of each parameter, and between steps.
func (r *ClusterRow) hold(store *graph.Store, l layout) {
	parts := map[division]int64{}
	for _, d := range divisions {
		parts[d] = int64(len(l.partsOf(d)(0)))
	}
	for _, v := range store.Variables() {
		n, name := v.Spec.Bytes(), v.Name
		switch of, gradient := strings.CutPrefix(v.Name, gradientPrefix); {
		case v.Kind == graph.Parameter:
			r.ParameterBytes += n
		case gradient:
			r.GradientBytes += n
			name = of
		case v.Kind == graph.State && !isModelTensor(v.Name):
			r.OptimizerBytes += n
		case v.Kind != graph.Scratch:
			r.OtherBytes += n
		}
		if p := store.Variable(name); divided(p) {
			r.PaddingBytes += n*parts[l.divisionOf(p)] - device.NewSpec(p.Spec.DType, p.Global...).Bytes()
		}
	}
}
