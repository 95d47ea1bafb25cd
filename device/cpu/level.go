package cpu

import (
	"fmt"
	"slices"
)

// level is a set of instructions that kernels are written for, worst first.
type level uint8

const (
	levelGo level = iota
	levelAVX2
	levelAVX512
)

var levelNames = [...]string{levelGo: "go", levelAVX2: "avx2", levelAVX512: "avx512"}

func (l level) String() string { return levelNames[l] }

// parseLevel returns the named level, or the best one for "".
func parseLevel(name string) (level, error) {
	best := bestLevel()
	if name == "" {
		return best, nil
	}
	i := slices.Index(levelNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("cpu: unknown kernel level %q: want avx512, avx2 or go", name)
	}
	if level(i) > best {
		return 0, fmt.Errorf("cpu: kernel level %q is not available: this processor and build have %q", name, best)
	}
	return level(i), nil
}
