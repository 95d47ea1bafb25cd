package spill

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
)

// Host is host memory that the device allocates, and pins if it can. A copy to it is a
// kernel like any other.
type Host struct {
	dev    device.Device
	memory device.Buffer
}

// NewHost returns a Host without room.
func NewHost(dev device.Device) *Host { return &Host{dev: dev} }

// Name implements device.Spill.
func (h *Host) Name() string { return "host memory" }

// Reserve implements device.Spill.
func (h *Host) Reserve(bytes int64) error {
	if h.memory != nil && h.memory.Size() >= bytes {
		return nil
	}
	h.Close()
	var err error
	if h.memory, err = h.dev.Alloc(device.OnHost, bytes); err != nil {
		return fmt.Errorf("spill: %d bytes of host memory: %w; offload less", bytes, err)
	}
	return nil
}

// Offload implements device.Spill.
func (h *Host) Offload(q device.Queue, offset int64, t device.Tensor) error {
	q.Copy(h.at(offset, t), t)
	return nil
}

// Reload implements device.Spill.
func (h *Host) Reload(q device.Queue, t device.Tensor, offset int64) error {
	q.Copy(t, h.at(offset, t))
	return nil
}

// at is the place of a tensor.
func (h *Host) at(offset int64, t device.Tensor) device.Tensor {
	return t.In(h.memory, offset)
}

// Close implements device.Spill.
func (h *Host) Close() error {
	if h.memory != nil {
		h.memory.Free()
		h.memory = nil
	}
	return nil
}
