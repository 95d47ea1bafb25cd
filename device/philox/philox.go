// Package philox is the counter-based random number generator Philox4x32-10 of
// Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3"
// (SC'11), and the way Lethe keys it.
//
// A number depends only on a key and a counter, never on how many were drawn
// before. The 64-bit key is [Key] of a seed, a fully qualified name and a call
// index; the counter is {index low, index high, step, microbatch}. Each element
// takes one counter and uses the first two of its four words as a 64-bit draw:
// word 0 is the low half.
package philox

import (
	"math"
	"math/bits"
)

const (
	multiplier0 = 0xD2511F53
	multiplier1 = 0xCD9E8D57
	weyl0       = 0x9E3779B9
	weyl1       = 0xBB67AE85
)

// Block returns the four words of one counter.
func Block(key uint64, counter [4]uint32) [4]uint32 {
	k0, k1 := uint32(key), uint32(key>>32)
	c0, c1, c2, c3 := counter[0], counter[1], counter[2], counter[3]
	for range 10 {
		hi0, lo0 := bits.Mul32(multiplier0, c0)
		hi1, lo1 := bits.Mul32(multiplier1, c2)
		c0, c1, c2, c3 = hi1^c1^k0, lo1, hi0^c3^k1, lo0
		k0 += weyl0
		k1 += weyl1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// Uint64 is the draw of the element at index.
func Uint64(key uint64, index uint64, step, microbatch uint32) uint64 {
	w := Block(key, [4]uint32{uint32(index), uint32(index >> 32), step, microbatch})
	return uint64(w[1])<<32 | uint64(w[0])
}

// Float64 maps a draw to [0, 1): its upper 53 bits over 2⁵³.
func Float64(draw uint64) float64 { return float64(draw>>11) / (1 << 53) }

// Normal maps a draw to a standard normal number by inversion, with the draw at
// the middle of its cell so that the tails are finite and symmetric.
func Normal(draw uint64) float64 {
	u := (float64(draw>>11) + 0.5) / (1 << 53)
	return math.Sqrt2 * math.Erfinv(2*u-1)
}

// TruncatedNormal maps a draw to a standard normal number conditioned on lying
// in [low, high].
func TruncatedNormal(draw uint64, low, high float64) float64 {
	cdf := func(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }
	l, h := cdf(low), cdf(high)
	u := l + (h-l)*(float64(draw>>11)+0.5)/(1<<53)
	return min(max(math.Sqrt2*math.Erfinv(2*u-1), low), high)
}

// Key hashes a seed, a name and a call index: FNV-1a over the seed's eight bytes
// (little endian), the name's bytes and the call index's eight bytes, then the
// finalizer of SplitMix64.
func Key(seed uint64, name string, call int) uint64 {
	h := uint64(14695981039346656037)
	mix := func(b byte) { h = (h ^ uint64(b)) * 1099511628211 }
	word := func(w uint64) {
		for i := range 8 {
			mix(byte(w >> (8 * i)))
		}
	}
	word(seed)
	for i := range len(name) {
		mix(name[i])
	}
	word(uint64(call))
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}
