package train

import (
	"fmt"
	"os"
	"slices"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device/spill"
	"github.com/lethe-go/lethe/graph"
)

// openSpill makes the file that a rank offloads to, if its plans do.
func (r *rank) openSpill() error {
	if ringBytes(r.programs.all()) == 0 {
		return nil
	}
	folder := r.config.OffloadPath()
	err := os.MkdirAll(folder, 0o777)
	if err == nil {
		r.spill, err = spill.NewFile(r.store.Device(), spill.FileOptions{Dir: folder, Through: r.disk})
	}
	if err != nil {
		return &ConfigError{fmt.Errorf("train: config: activation_checkpoint.offload_folder: %w", err)}
	}
	r.store.OffloadTo(r.spill)
	return nil
}

// ringBytes are the buffers between memory and the file, if any of the Programs offloads.
func ringBytes(programs []*graph.Program) int64 {
	if slices.ContainsFunc(programs, func(p *graph.Program) bool { return p.SpillBytes > 0 }) {
		return spill.RingBytes
	}
	return 0
}

// ringBytes of a rank of this process.
func (t *Trainer) ringBytes() int64 { return ringBytes(t.ranks[0].programs.all()) }

// disk is the part of a rank, with costs of operations beside it.
func (c Config) disk(costs checkpoint.Costs) checkpoint.Disk {
	d := checkpoint.Disk{Costs: costs, Bandwidth: c.ActivationCheckpoint.OffloadBandwidth / float64(newLayout(c.Parallelism).processRanks(c.Parallelism.Backend))}
	if of, ok := costs.(interface{ MemoryBandwidth() float64 }); ok {
		d.Memory = of.MemoryBandwidth()
	}
	return d
}

// AddedSeconds are what an optimizer step takes longer than one that keeps everything, by
// the costs of operations and activation_checkpoint.offload_bandwidth: what is computed
// again, and by what copies to and from the file hold it up.
func (t *Trainer) AddedSeconds() (reruns, waits float64) {
	costs := t.options.copyCosts()
	if t.budget != nil {
		costs = t.budget.costs
	}
	of := t.ranks[0].programs.times(t.config.Training.Microbatches(), costs)
	return float64(of.reruns) / 1e9, float64(of.waits) / 1e9
}

// copyCosts are those by which copies are placed where no planner does.
func (o Options) copyCosts() checkpoint.Costs {
	if o.Costs != nil {
		return o.Costs
	}
	return checkpoint.DefaultCosts()
}
