package data

import (
	"math/bits"

	"github.com/lethe-go/lethe/device/philox"
)

// permutation is a random permutation of [0, n) that is computed where it is asked
// for, so that it takes no memory and a resume no time: a Feistel network with
// Philox as its round function over the next power of four, walked until the result
// is below n (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
type permutation struct {
	n, key uint64
	half   int // bits of each side
}

const feistelRounds = 8

// newPermutation is the order of n documents in an epoch.
func newPermutation(n int, seed uint64, epoch int64) permutation {
	return permutation{
		n:    uint64(n),
		key:  philox.Key(seed, "data.order", int(epoch)),
		half: max(1, (bits.Len64(uint64(n-1))+1)/2),
	}
}

// at returns the element at place i.
func (p permutation) at(i int) int {
	x := p.encrypt(uint64(i))
	for x >= p.n {
		x = p.encrypt(x)
	}
	return int(x)
}

func (p permutation) encrypt(x uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	left, right := x>>p.half, x&mask
	for round := range uint64(feistelRounds) {
		word := philox.Block(p.key, [4]uint32{uint32(right), uint32(right >> 32), uint32(round), 0})
		left, right = right, left^uint64(word[0])&mask
	}
	return left<<p.half | right
}
