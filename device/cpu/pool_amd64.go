//go:build amd64 && !noasm

package cpu

// spinLimit is some tens of microseconds: longer than the gap between two kernels
// of a step.
const spinLimit = 1000

// spinPause leaves the processor's units to its other thread for a moment.
//
//go:noescape
func spinPause()
