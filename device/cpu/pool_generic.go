//go:build !amd64 || noasm

package cpu

// spinLimit is some tens of microseconds: longer than the gap between two kernels
// of a step.
const spinLimit = 10000

func spinPause() {}
