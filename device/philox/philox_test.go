package philox

import (
	"math"
	"testing"
)

// The known answers of the Random123 distribution (kat_vectors, philox4x32 10).
func TestKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		key     uint64
		counter [4]uint32
		want    [4]uint32
	}{
		{0, [4]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{math.MaxUint64, [4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{0x299f31d0_a4093822, [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := Block(c.key, c.counter); got != c.want {
			t.Errorf("Block(%#x, %#x) = %#x, want %#x", c.key, c.counter, got, c.want)
		}
	}
}

func TestMoments(t *testing.T) {
	const n = 1 << 16
	var mean, square, low float64
	for i := range n {
		x := Normal(Uint64(1, uint64(i), 0, 0))
		mean += x / n
		square += x * x / n
		low = min(low, TruncatedNormal(Uint64(2, uint64(i), 0, 0), -2, 2))
	}
	if math.Abs(mean) > 0.015 || math.Abs(square-1) > 0.02 {
		t.Errorf("mean %v, variance %v: want 0 and 1", mean, square)
	}
	if low < -2 || low > -1.9 {
		t.Errorf("lowest truncated draw %v: want near −2 and not below", low)
	}
}

func TestKeysDiffer(t *testing.T) {
	if Key(1, "a", 0) == Key(1, "a", 1) || Key(1, "a", 0) == Key(2, "a", 0) || Key(1, "a", 0) == Key(1, "b", 0) {
		t.Error("keys of different seeds, names or calls are equal")
	}
}
