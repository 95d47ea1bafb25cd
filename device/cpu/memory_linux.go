//go:build linux && !race

package cpu

import "golang.org/x/sys/unix"

// adviseHugePages asks for large pages, which spares a training step most of its
// page-table misses; where there are none nothing is lost.
func adviseHugePages(m []byte) {
	if len(m) >= 2<<20 {
		unix.Madvise(m, unix.MADV_HUGEPAGE)
	}
}
