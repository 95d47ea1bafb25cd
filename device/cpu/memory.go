package cpu

import (
	"fmt"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// buffer is a range of zeroed, aligned memory.
type buffer struct {
	base    unsafe.Pointer
	size    int64
	release func()
}

func (b *buffer) Size() int64             { return b.size }
func (b *buffer) Pointer() unsafe.Pointer { return b.base }

func (b *buffer) Free() {
	if b.release != nil {
		b.release()
	}
	*b = buffer{}
}

// Alloc returns zeroed memory. Host and device memory are the same here.
func (d *Device) Alloc(_ device.Place, bytes int64) (device.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cpu: cannot allocate %d bytes", bytes)
	}
	return allocate(bytes)
}

func allocate(bytes int64) (*buffer, error) {
	if bytes == 0 {
		return &buffer{}, nil
	}
	return allocatePages(bytes)
}
