package train

import "github.com/lethe-go/lethe/data"

// fingerprint is a hash (FNV-1a, a number at a time) of what a batch holds, and of what came
// before it.
func fingerprint(h uint64, b *data.Batch) uint64 {
	for _, ids := range [...][]int32{b.Tokens, b.Labels, b.Positions, b.DocumentStart} {
		for _, id := range ids {
			h = (h ^ uint64(uint32(id))) * 1099511628211
		}
	}
	return h
}

// noFingerprint is that of no batch.
const noFingerprint = 14695981039346656037

// differs turns the fingerprints of what each rank has read into numbers whose sum over all
// ranks is 0 where those of a tensor group have read the same.
func (l layout) differs(rank int, h uint64) int {
	if l.tensorPlace(rank) == 0 {
		return int(h) * (l.tensors - 1)
	}
	return -int(h)
}
