package train

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MemoryBudget is a number of bytes, written with a unit such as "512MiB" or "1.5GB", or
// a fraction of the memory that the machine lets this process use, such as 0.5. The zero
// value is no budget.
type MemoryBudget struct {
	Bytes    int64
	Fraction float64 // in (0, 1], if Bytes is 0
}

// byteUnits are the units of a budget, the longest names first.
var byteUnits = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

func (m MemoryBudget) String() string {
	switch {
	case m.Fraction > 0:
		return strconv.FormatFloat(m.Fraction, 'g', -1, 64)
	case m.Bytes == 0:
		return ""
	}
	for _, unit := range []int{2, 1, 0} {
		if u := byteUnits[unit]; m.Bytes%u.bytes == 0 {
			return fmt.Sprint(m.Bytes/u.bytes, u.name)
		}
	}
	return fmt.Sprint(m.Bytes, "B")
}

// MarshalText writes what UnmarshalText reads back as the same budget.
func (m MemoryBudget) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a number with a unit of bytes, or a fraction. Nothing is no budget.
func (m *MemoryBudget) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if s == "" {
		*m = MemoryBudget{}
		return nil
	}
	for _, u := range byteUnits {
		number, found := strings.CutSuffix(s, u.name)
		if !found {
			continue
		}
		bytes, err := parseNumber(strings.TrimSpace(number), parseFloat)
		// The largest float64 below 2⁶³ is the most that converts.
		if bytes *= float64(u.bytes); err != nil || !(bytes >= 1 && bytes < math.MaxInt64) {
			return errors.New("not a number of bytes")
		}
		*m = MemoryBudget{Bytes: int64(bytes)}
		return nil
	}
	fraction, err := parseNumber(s, parseFloat)
	switch {
	case err != nil:
		return errors.New("neither bytes nor a fraction")
	case fraction > 1:
		return errors.New("a number of bytes needs a unit")
	case !(fraction > 0):
		return errors.New("not a fraction of memory")
	}
	*m = MemoryBudget{Fraction: fraction}
	return nil
}

// rank is what one of so many ranks may hold that share a memory, in bytes.
func (m MemoryBudget) rank(memory int64, ranks int) (int64, error) {
	if m.Bytes > 0 {
		return m.Bytes, nil
	}
	if memory == 0 {
		return 0, fmt.Errorf("train: config: activation_checkpoint.memory_budget: the system does not say how much memory there is to take %v of; write a number of bytes, such as \"512MiB\"", m)
	}
	return int64(m.Fraction * float64(memory) / float64(ranks)), nil
}
