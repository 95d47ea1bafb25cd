package cpu

import "github.com/lethe-go/lethe/device"

func (q *queue) BalanceBias(bias, counts device.Tensor, step float64) {
	same(bias, counts)
	if isFloat32(bias) {
		balanceBias(elements[float32](bias), elements[float32](counts), step)
	} else {
		balanceBias(elements[float64](bias), elements[float64](counts), step)
	}
}

func balanceBias[T float](bias, counts []T, step float64) {
	if len(bias) != len(counts) {
		panic("cpu: bias and counts of unequal lengths")
	}
	experts, load, signs := float64(len(counts)), 0.0, 0.0
	for _, n := range counts {
		load += float64(n)
	}
	for _, n := range counts {
		signs += sign(load/experts - float64(n))
	}
	for e, n := range counts {
		bias[e] = T(float64(bias[e]) + step*(sign(load/experts-float64(n))-signs/experts))
	}
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}
