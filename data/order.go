package data

import (
	"math/bits"
	"strconv"

	"github.com/lethe-go/lethe/device/philox"
)

// shuffle says in which order an epoch reads the documents of a source. The order is
// computed place by place: it takes no memory, and a resume no time.
type shuffle struct {
	on     bool
	window int // documents that are shuffled among each other; 0 means all
	seed   uint64
	order  string // names this source's random numbers
	blocks string
}

// newShuffle gives the i-th source of a mixture its own random numbers.
func newShuffle(o Options, i int) shuffle {
	s := shuffle{on: o.Shuffle, window: o.ShuffleWindow, seed: o.Seed, order: "data.order", blocks: "data.blocks"}
	if i > 0 {
		s.order += strconv.Itoa(i)
		s.blocks += strconv.Itoa(i)
	}
	return s
}

// at returns the number of the document at a place of an epoch of n.
//
// With a window the epoch is cut into blocks of so many documents, from a random place
// on that is another in every epoch, and each block is permuted: a document is less
// than a window from its place in the source.
func (s shuffle) at(n int, epoch int64, place int) int {
	switch {
	case !s.on:
		return place
	case s.window == 0 || s.window >= n:
		return newPermutation(n, philox.Key(s.seed, s.order, int(epoch))).at(place)
	}
	key := philox.Key(s.seed, s.blocks, int(epoch))
	missing := int(key % uint64(s.window)) // documents of the first block that come before the first
	block := (place + missing) / s.window
	from := max(0, block*s.window-missing)
	to := min(n, (block+1)*s.window-missing)
	return from + newPermutation(to-from, philox.Key(key, s.blocks, block)).at(place-from)
}

// permutation is a random permutation of [0, n): a Feistel network with Philox as its
// round function over the next power of four, walked until the result is below n (Black
// and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
type permutation struct {
	n, key uint64
	half   int // bits of each side
}

const feistelRounds = 8

func newPermutation(n int, key uint64) permutation {
	return permutation{
		n:    uint64(n),
		key:  key,
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
