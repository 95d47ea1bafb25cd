// Package device is the narrow waist between operations and hardware.
//
// A [Device] owns memory and hands out [Queue]s. A queue runs [Kernels], some
// forty methods in terms of [Tensor] views, in the order they were called.
// Everything above this package (ops, planner, executor) speaks only of specs,
// tensors and kernels; everything below it is one folder per kind of hardware.
//
// # Memory
//
// A [Tensor] is a view: a buffer, a byte offset, a dtype, a shape and strides.
// It owns nothing. Its shape is the live one: where a [Spec] declares a number
// of rows that is known only at run time, Spec.Shape holds the bound and the
// tensors that reach a kernel are already narrowed to the live rows. Kernels
// never pad and never touch what lies beyond.
//
// # Determinism
//
// A kernel splits its work by the shapes of its arguments, never by the number
// of workers, and every sum has one fixed order. Two runs with the same inputs
// give the same bits for any number of workers at one kernel level.
//
// # Conformance
//
// Package devicetest holds one suite that every device passes.
package device
