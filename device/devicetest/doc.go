// Package devicetest is the suite of tests that every [device.Device] passes.
//
// Each kernel has one [kernelTest]: it makes operands, names the call and
// compares the result with a naive float64 implementation. The suite runs each
// in several ways:
//
//   - small random shapes, strides and flags (rapid shrinks a failure);
//   - shapes large enough to be split, against the same implementation, and
//     then again and again: no allocation on the Go heap;
//   - the same large call with 1, 2, 3 and 7 workers: equal bits.
//
// Every tensor lies inside a buffer full of NaN. After a call the buffer must
// hold the old bytes everywhere but in the outputs' elements.
//
// Bounds: an element may be off by a number of units in the last place of its
// scale, the magnitude of what was added up to get it. The number stands with
// each comparison.
package devicetest
