// Package instrument measures how much memory a run really needs, without
// knowing what was planned.
//
// [Wrap] puts an instrument between the executor and a device. It sees nothing
// but the byte ranges that kernels read and write, and a clock that the executor
// advances at every step. From one recorded run it finds when each byte was
// alive: from a write to the last read before the next write. The most bytes
// alive at one tick is the measured peak. What it is told besides is which tensors runs
// hand to each other: these are read when a run is over, and may have been written before it.
//
// With poison on, the next run is disturbed on purpose: the watched buffer is
// filled with NaN as the run begins and every byte again as soon as its last reader
// in the recorded run is past. A kernel that reads what it did not declare, or an
// executor that keeps a value in memory that was given to another, then changes
// the result.
package instrument
