//go:build race || !unix

package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// allocatePages takes the memory from the Go heap, where the race detector sees it.
func allocatePages(bytes int64) (*buffer, error) {
	m := make([]byte, bytes+device.Alignment)
	skip := -uintptr(unsafe.Pointer(&m[0])) & (device.Alignment - 1)
	return &buffer{base: unsafe.Pointer(&m[skip]), size: bytes}, nil
}
