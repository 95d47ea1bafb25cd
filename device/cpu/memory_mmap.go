//go:build unix && !race

package cpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocatePages maps anonymous pages: zeroed, page-aligned, outside the Go heap.
func allocatePages(bytes int64) (*buffer, error) {
	m, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("cpu: cannot allocate %d bytes: %w", bytes, err)
	}
	adviseHugePages(m)
	return &buffer{base: unsafe.Pointer(&m[0]), size: bytes, release: func() { unix.Munmap(m) }}, nil
}
