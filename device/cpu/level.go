package cpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/internal/openblas"
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

// openBLASSuffix marks a level whose matrix products are those of OpenBLAS.
const openBLASSuffix = "+openblas"

// parseLevel returns the named level, or the best one for "", and whether OpenBLAS
// multiplies matrices.
func parseLevel(name string) (l level, openBLAS bool, err error) {
	best := bestLevel()
	if name == "" {
		return best, openblas.Linked, nil
	}
	base, openBLAS := strings.CutSuffix(name, openBLASSuffix)
	i := slices.Index(levelNames[:], base)
	switch {
	case i < 0:
		return 0, false, fmt.Errorf("cpu: unknown kernel level %q: want avx512, avx2 or go", name)
	case level(i) > best:
		return 0, false, fmt.Errorf("cpu: kernel level %q is not available: this processor and build have %q", name, best)
	case openBLAS && !openblas.Linked:
		return 0, false, fmt.Errorf("cpu: kernel level %q is not available: build with -tags openblas", name)
	}
	return level(i), openBLAS, nil
}
