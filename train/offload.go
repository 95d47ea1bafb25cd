package train

import (
	"fmt"
	"os"
	"slices"

	"github.com/lethe-go/lethe/device/spill"
	"github.com/lethe-go/lethe/graph"
)

// openSpill makes the file that a rank offloads to, if its plans do.
func (r *rank) openSpill() error {
	if !slices.ContainsFunc(r.programs.all(), func(p *graph.Program) bool { return p.SpillBytes > 0 }) {
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

// ringBytes are the buffers between memory and the file, if a config offloads.
func (c Config) ringBytes() int64 {
	if len(c.ActivationCheckpoint.Offload) == 0 {
		return 0
	}
	return spill.RingBytes
}

// diskBandwidth is the part of a rank, in bytes a second.
func (c Config) diskBandwidth() float64 {
	return c.ActivationCheckpoint.OffloadBandwidth / float64(newLayout(c.Parallelism).processRanks(c.Parallelism.Backend))
}
