package train

import (
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
)

// openDevice returns the device that is given, or else opens the CPU with so many threads, 0
// for one on every processor. closeOwn closes what was opened here, and nothing else.
func openDevice(given device.Device, threads int) (d device.Device, closeOwn func() error, err error) {
	if given != nil {
		return given, func() error { return nil }, nil
	}
	own, err := cpu.New(cpu.Options{Workers: threads})
	if err != nil {
		return nil, nil, err
	}
	return own, own.Close, nil
}
