package train

import (
	"time"

	"github.com/lethe-go/lethe/device"
)

// flopsMeter is a device that measures its own peak.
type flopsMeter interface {
	// PeakFLOPs is the rate of fused multiply-adds, counted as two operations
	// each, that all workers reach together, in FLOP/s of float32.
	PeakFLOPs() float64
}

// peakFLOPs measures what MFU is a fraction of, and says how: by the device's own
// meter, or else by matrix products, which come within a tenth of its peak.
func peakFLOPs(d device.Device) (flops float64, how string, err error) {
	if m, ok := d.(flopsMeter); ok {
		return m.PeakFLOPs(), "fused multiply-adds", nil
	}
	flops, err = matmulFLOPs(d, 200*time.Millisecond)
	return flops, "products of 512×512 matrices", err
}

// matmulFLOPs is the best rate that products of 512×512 matrices reach within
// some time.
func matmulFLOPs(d device.Device, duration time.Duration) (float64, error) {
	const n = 512
	buffer, err := d.Alloc(device.OnDevice, 3*n*n*4)
	if err != nil {
		return 0, err
	}
	defer buffer.Free()
	var x [3]device.Tensor
	for i := range x {
		x[i] = device.NewTensor(buffer, int64(i)*n*n*4, device.Float32, n, n)
	}
	q := d.NewQueue()
	defer q.Close()
	var best float64
	for start := time.Now(); time.Since(start) < duration; {
		begin := time.Now()
		q.MatMul(x[0], x[1], x[2], false)
		if err := q.Sync(); err != nil {
			return 0, err
		}
		best = max(best, 2*n*n*n/time.Since(begin).Seconds())
	}
	return best, nil
}
