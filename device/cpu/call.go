package cpu

import "github.com/lethe-go/lethe/device"

// Call runs f on the calling goroutine.
func (q *queue) Call(f device.Function, out, in []device.Tensor) {
	if err := f.Call(out, in); err != nil {
		q.fail(err)
	}
}
