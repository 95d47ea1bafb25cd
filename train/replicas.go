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
	variables := map[division][]*graph.Variable{}
	for _, v := range stateVariables(r.store) {
		of := r.layout.divisionOf(v)
		variables[of] = append(variables[of], v)
	}
	for _, of := range append([]division{{}}, divisions...) {
		if err := compareSums(ctx, d, r.ends.copies(of), r.layout.copiesOf(of)(r.index), variables[of]); err != nil {
			return err
		}
	}
	return nil
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
