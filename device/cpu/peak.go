package cpu

import "time"

// PeakFLOPs measures the rate of float32 fused multiply-adds, counted as two
// operations each, that all workers reach together, in FLOP/s: what no kernel of
// this device's level can surpass. It takes a fifth of a second and returns the best
// of many short measurements, so that a busy machine lowers it little.
func (d *Device) PeakFLOPs() float64 {
	const duration = 200 * time.Millisecond
	t := &peakTask{level: d.level}
	tasks := peakTasksPerWorker * d.pool.workers
	best := 0.0
	for start := time.Now(); time.Since(start) < duration; {
		begin := time.Now()
		d.pool.run(tasks, t)
		best = max(best, float64(tasks*peakRounds*peakFLOPsPerRound(d.level))/time.Since(begin).Seconds())
	}
	return best
}

// A task is some ten microseconds, and a measurement of all workers below one
// millisecond, which the operating system often leaves undisturbed.
const (
	peakRounds         = 8192
	peakTasksPerWorker = 32
)

type peakTask struct{ level level }

func (t *peakTask) do(_, _ int) { fmaRounds(t.level, peakRounds) }

// peakSums is how many sums run side by side: more than the latency of a multiply-add
// times the units that do them.
const peakSums = 12

// fmaRoundsGo multiplies and adds to each of several numbers, n times.
//
//	for range n {
//		for i := range sums {
//			sums[i] = sums[i]*x + y // fused, in assembly; and each sum a vector
//		}
//	}
//
// Not to be inlined, or it would be found to be of no use.
//
//go:noinline
func fmaRoundsGo(n int, x, y float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11 float32
	for range n {
		s0 = s0*x + y
		s1 = s1*x + y
		s2 = s2*x + y
		s3 = s3*x + y
		s4 = s4*x + y
		s5 = s5*x + y
		s6 = s6*x + y
		s7 = s7*x + y
		s8 = s8*x + y
		s9 = s9*x + y
		s10 = s10*x + y
		s11 = s11*x + y
	}
	return s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11
}
