package cpu

import (
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/devicetest"
)

func TestDevice(t *testing.T) {
	for l := levelGo; l <= bestLevel(); l++ {
		if testing.Short() && l != bestLevel() {
			continue
		}
		t.Run(l.String(), func(t *testing.T) {
			devicetest.Run(t, func(workers int) (device.Device, error) {
				return New(Options{Workers: workers, Level: l.String()})
			})
		})
	}
}
