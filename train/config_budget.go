package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lethe-go/lethe/internal/quantity"
)

// MemoryBudget is a number of bytes, written with a unit such as "512MiB" or "1.5GB", or
// a fraction of the memory that the machine lets this process use, such as 0.5. The zero
// value is no budget.
type MemoryBudget struct {
	Bytes    int64
	Fraction float64 // in (0, 1], if Bytes is 0
}

func (m MemoryBudget) String() string {
	switch {
	case m.Fraction > 0:
		return strconv.FormatFloat(m.Fraction, 'g', -1, 64)
	case m.Bytes == 0:
		return ""
	}
	for _, u := range slices.Backward(quantity.Bytes[:3]) { // KiB to GiB
		if m.Bytes%int64(u.Factor) == 0 {
			return fmt.Sprint(m.Bytes/int64(u.Factor), u.Name)
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
	if number, unit, ok := quantity.Cut(s, quantity.Bytes); ok {
		bytes, err := parseNumber(strings.TrimSpace(number), parseFloat)
		// The largest float64 below 2⁶³ is the most that converts.
		if bytes *= unit; err != nil || !(bytes >= 1 && bytes < math.MaxInt64) {
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
