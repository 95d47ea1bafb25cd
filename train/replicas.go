package train

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// ErrDiverged is wrapped by the error of ranks that no longer hold the same of what they
// have in common.
var ErrDiverged = errors.New("replicas differ")

// checkReplicas compares the checksums of what this rank has in common with others: whole
// variables with all ranks, parts with the ranks that hold the same part.
func (r *rank) checkReplicas(ctx context.Context, d device.Device) error {
	var whole, parts []*graph.Variable
	for _, v := range stateVariables(r.store) {
		if divided(v) {
			parts = append(parts, v)
		} else {
			whole = append(whole, v)
		}
	}
	if err := compareSums(ctx, d, r.ends.data, r.layout.all(r.layout.ranks()), whole); err != nil {
		return err
	}
	return compareSums(ctx, d, r.ends.replica, r.layout.replicaGroup(r.index), parts)
}

// compareSums names the first variable of which the members of a group, these ranks of the
// job, have different checksums.
func compareSums(ctx context.Context, d device.Device, g collective.Group, ranks []int, variables []*graph.Variable) error {
	if g == nil || len(variables) == 0 {
		return nil
	}
	sums, err := gather(ctx, d, g, device.Int64, len(variables), func(own device.Tensor) {
		for i, v := range variables {
			device.Elements[int64](own)[i] = int64(crc32.Checksum(memory(v), castagnoli))
		}
	})
	if err != nil {
		return err
	}
	defer sums.Buffer().Free()
	all := device.Elements[int64](sums)
	for i, v := range variables {
		for r := range ranks {
			if all[r*len(variables)+i] != all[i] {
				texts := make([][]byte, len(ranks))
				for r := range texts {
					texts[r] = fmt.Appendf(nil, "checksum %08x", all[r*len(variables)+i])
				}
				return fmt.Errorf("%w: %s: %s; the last state may have it too: compare with a run without the rank, or resume from an earlier one",
					ErrDiverged, v.Name, contrast(texts, func(r int) int { return ranks[r] }))
			}
		}
	}
	return nil
}
