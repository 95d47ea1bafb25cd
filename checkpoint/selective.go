package checkpoint

import "slices"

// Selective saves what is expensive to compute again and recomputes the rest:
// torchtitan's selective activation checkpointing, and like prime-rl also the
// grouped matmuls, which are the larger part of a mixture-of-experts layer.
//
//   - attention, grouped_matmul, max (a reduction behind quantized products) and
//     every second matmul of the region, the first included;
//   - topk, all_to_all (routing counts and tokens), reduce_scatter, to_host.
//
// Computation is saved as a preference: a byte budget may take it back. To
// change the list, use Override: {"matmul": MustSave} saves every matmul.
func Selective() Policy {
	return func(c Candidate) Decision {
		switch {
		case c.Kind == "matmul" && c.Index%2 == 0, slices.Contains(expensive, c.Kind):
			return PreferSave
		case slices.Contains(routed, c.Kind):
			return MustSave
		}
		return PreferRecompute
	}
}

// expensive are the kinds whose rerun would cost a large part of the forward
// pass.
var expensive = []string{"attention", "grouped_matmul", "max"}

// routed are the kinds that choose, communicate or make the host wait.
var routed = []string{"topk", "all_to_all", "reduce_scatter", "to_host"}
